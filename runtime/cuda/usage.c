#include "usage.h"

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

void sp_usage_begin(sp_usage *u, int small, uint64_t size, uint64_t requested) {
  sp_kind *k = small ? &u->small : &u->large;
  add(&k->blocks, &u->all.blocks, 1);
  add(&k->bytes, &u->all.bytes, size);
  add(&k->requested, &u->all.requested, requested);
}

void sp_usage_end(sp_usage *u, int small, uint64_t size, uint64_t requested) {
  sp_kind *k = small ? &u->small : &u->large;
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

/* Kinds of blocks, quantities of each, and all tallies of sp_usage: those, and
 * those of memory. tally_of and stat_of number them alike. */
enum { KINDS = 3, QUANTITIES = 3, MEMORY = 4, TALLIES = KINDS * QUANTITIES + MEMORY };

static sp_tally *tally_of(sp_usage *u, int i) {
  sp_kind *kinds[KINDS] = {&u->all, &u->small, &u->large};
  sp_tally *memory[MEMORY] = {&u->reserved, &u->extents, &u->small_reserved, &u->small_extents};
  if (i >= KINDS * QUANTITIES)
    return memory[i - KINDS * QUANTITIES];
  sp_kind *k = kinds[i / QUANTITIES];
  sp_tally *quantities[QUANTITIES] = {&k->blocks, &k->bytes, &k->requested};
  return quantities[i % QUANTITIES];
}

static stplan_stat *stat_of(stplan_statistics *s, int i) {
  stplan_usage *kinds[KINDS] = {&s->all, &s->small, &s->large};
  stplan_stat *memory[MEMORY] = {&s->reserved, &s->extents, &s->small_reserved, &s->small_extents};
  if (i >= KINDS * QUANTITIES)
    return memory[i - KINDS * QUANTITIES];
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
