/* usage.c: statistics of what is in use. */
#include "usage.h"

#include "device.h"

enum { SMALL_BLOCK = 1 << 20 };

static void rise(sp_tally *t) {
  if (t->current + t->beside > t->peak)
    t->peak = t->current + t->beside;
}

/* add notes more of one kind, and the sum of both kinds. */
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

/* TALLIES is how many there are in sp_usage; stat_of and tally_of number them
 * alike, so that what is done to each is said once. */
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

void stplan_measure(stplan_device *d, stplan_statistics *statistics) {
  pthread_mutex_lock(&d->lock);
  sp_tally_set(&d->usage.extents, d->arena.extents);
  for (int i = 0; i < TALLIES; i++) {
    const sp_tally *t = tally_of(&d->usage, i);
    *stat_of(statistics, i) = (stplan_stat){
        .current = t->current,
        .peak = t->peak,
        .added = t->added - t->old_added,
        .removed = t->added - t->current - t->old_removed,
    };
  }
  pthread_mutex_unlock(&d->lock);
}

void stplan_reset_peaks(stplan_device *d) {
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(&d->usage, i);
    t->peak = t->current + t->beside;
  }
  pthread_mutex_unlock(&d->lock);
}

void stplan_reset_sums(stplan_device *d) {
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(&d->usage, i);
    t->old_added = t->added;
    t->old_removed = t->added - t->current;
  }
  pthread_mutex_unlock(&d->lock);
}

void stplan_beside(stplan_device *d, const stplan_statistics *other) {
  stplan_statistics copy = *other;
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < TALLIES; i++) {
    sp_tally *t = tally_of(&d->usage, i);
    t->beside = stat_of(&copy, i)->current;
    rise(t);
  }
  pthread_mutex_unlock(&d->lock);
}
