#include "usage.h"

/* Bytes. Blocks of up to this are small, as in torch's statistics. */
enum { SMALL_BLOCK = 1 << 20 };

/* rise follows a new current value with the peak. */
static void rise(sp_tally *t) {
  if (t->current + t->beside > t->peak)
    t->peak = t->current + t->beside;
}

/* add and sub change a tally of one kind, and that of both kinds together. */
static void add(sp_tally *t, sp_tally *all, uint64_t n) {
  t->current += n;
  t->added += n;
  all->current += n;
  all->added += n;
  rise(t);
  rise(all);
}

static void sub(sp_tally *t, sp_tally *all, uint64_t n) {
  t->current -= n;
  all->current -= n;
}

void sp_usage_begin(sp_usage *u, uint64_t size, uint64_t requested) {
  sp_kind *k = size <= SMALL_BLOCK ? &u->small : &u->large;
  add(&k->blocks, &u->all.blocks, 1);
  add(&k->bytes, &u->all.bytes, size);
  add(&k->requested, &u->all.requested, requested);
}

void sp_usage_end(sp_usage *u, uint64_t size, uint64_t requested) {
  sp_kind *k = size <= SMALL_BLOCK ? &u->small : &u->large;
  sub(&k->blocks, &u->all.blocks, 1);
  sub(&k->bytes, &u->all.bytes, size);
  sub(&k->requested, &u->all.requested, requested);
}

void sp_tally_set(sp_tally *t, uint64_t current) {
  if (current > t->current)
    t->added += current - t->current;
  t->current = current;
  rise(t);
}

/* Kinds of blocks, quantities of each, and all tallies of sp_usage: those,
 * reserved and extents. tally_of and stat_of number them alike. */
enum { KINDS = 3, QUANTITIES = 3, TALLIES = KINDS * QUANTITIES + 2 };

static sp_tally *tally_of(sp_usage *u, int i) {
  sp_kind *kinds[KINDS] = {&u->all, &u->small, &u->large};
  if (i >= KINDS * QUANTITIES)
    return i == KINDS * QUANTITIES ? &u->reserved : &u->extents;
  sp_kind *k = kinds[i / QUANTITIES];
  sp_tally *quantities[QUANTITIES] = {&k->blocks, &k->bytes, &k->requested};
  return quantities[i % QUANTITIES];
}

static stplan_stat *stat_of(stplan_statistics *s, int i) {
  stplan_usage *kinds[KINDS] = {&s->all, &s->small, &s->large};
  if (i >= KINDS * QUANTITIES)
    return i == KINDS * QUANTITIES ? &s->reserved : &s->extents;
  stplan_usage *k = kinds[i / QUANTITIES];
  stplan_stat *quantities[QUANTITIES] = {&k->blocks, &k->bytes, &k->requested};
  return quantities[i % QUANTITIES];
}

void sp_usage_measure(sp_usage *u, stplan_statistics *statistics) {
  for (int i = 0; i < TALLIES; i++) {
    const sp_tally *t = tally_of(u, i);
    *stat_of(statistics, i) = (stplan_stat){
        .current = t->current,
        .peak = t->peak,
        .added = t->added - t->old_added,
        .removed = t->added - t->current - t->old_removed,
    };
  }
}

void sp_usage_reset_peaks(sp_usage *u) {
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(u, i);
    t->peak = t->current + t->beside;
  }
}

void sp_usage_reset_sums(sp_usage *u) {
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(u, i);
    t->old_added = t->added;
    t->old_removed = t->added - t->current;
  }
}

void sp_usage_beside(sp_usage *u, const stplan_statistics *other) {
  stplan_statistics copy = *other;
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(u, i);
    t->beside = stat_of(&copy, i)->current;
    rise(t);
  }
}
