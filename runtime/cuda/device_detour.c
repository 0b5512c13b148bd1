#include "device_detour.h"

#include <string.h>

/* Addresses that are looked at for one detour, each right behind the one before. It bounds the
 * time of a request. */
enum { TRIES = 16 };

/* Granules that a place has at least for a detour: 20 MiB (SP_MOVE_LEAST) if they are the smallest. At either end
 * it takes part of a granule more, which costs too much of a small place if they are large. */
enum { LEAST = 10 };

/* 1/N of the plan's memory, likewise, if steps of the plan share places. Each pass then has other blocks that the plan does not
 * know, in the way of other places: a detour and a return for each of these in each pass. Elsewhere they are served with less. A
 * pipeline of experts with places of 64 MiB in 25 GiB, served by the plan of another run for 40 more iterations, moves
 * 0.73 of what it reserves with 1/64 and 0.33 with this, without any and with 1/32 (docs/results/unseen.md). */
enum { LEAST_SHARING = 8 };

void sp_detours_open(sp_detours *t, uint64_t base, uint64_t unit, uint64_t edge, uint64_t end, int shares) {
  uint64_t first = sp_round_up(edge, unit), least = LEAST * unit;
  if (shares && least < edge / LEAST_SHARING)
    least = edge / LEAST_SHARING;
  *t = (sp_detours){.base = base, .unit = unit, .least = least, .edge = edge, .first = first, .end = first < end ? end : first, .next = first};
}

/* begin tells the arena of the addresses for detours, which go on behind the plan's. Without them
 * the plan's last granule is taken only as far as it has places. 0 if there are none, or if the plan's own
 * have gone with the last of their memory: then these are not ours any more either. */
static int begin(stplan_device *d, sp_detours *t) {
  const sp_range *last = t->first == t->end ? NULL : sp_arena_holding(&d->arena, t->base + t->edge - 1);
  if (last == NULL || last->zone != SP_ZONE_PLAN)
    return 0;
  if (t->edge < t->end)
    sp_arena_add(&d->arena, t->base + t->edge, t->end - t->edge, t->unit, SP_ZONE_PLAN, 1, SP_ABSENT);
  t->edge = t->end;
  return 1;
}

/* holding is the index of the detour that a place makes; -1 if it makes none. */
static int holding(const sp_detours *t, uint64_t offset, uint64_t size) {
  for (int i = t->count - 1; i >= 0; i--)
    if (offset >= t->list[i].low && offset + size <= t->list[i].high)
      return i;
  return -1;
}

uint64_t sp_detours_place(const sp_detours *t, uint64_t offset, uint64_t size) {
  int i = holding(t, offset, size);
  return i < 0 ? offset : offset - t->list[i].low + t->list[i].at;
}

static uint64_t length(const sp_detour *of) { return of->high - of->low; }

uint64_t sp_detours_home(const sp_detours *t, uint64_t offset) {
  for (int i = 0; i < t->count; i++) {
    const sp_detour *of = &t->list[i];
    if (offset >= sp_round_down(of->at, t->unit) && offset < of->at + length(of))
      return of->low + offset - of->at;
  }
  return offset;
}

static void drop(sp_detours *t, int i) {
  t->count--;
  memmove(&t->list[i], &t->list[i + 1], (size_t)(t->count - i) * sizeof t->list[0]);
}

/* add replaces what lies within a new detour, which takes its places along. If there are too many, the oldest ends. */
static void add(sp_detours *t, const sp_detour *new) {
  for (int i = t->count - 1; i >= 0; i--)
    if (t->list[i].low >= new->low && t->list[i].high <= new->high)
      drop(t, i);
  if (t->count == SP_DETOURS)
    drop(t, 0);
  t->list[t->count++] = *new;
}

/* vacant says whether nothing lies in [offset, offset+size), be it without memory. */
static int vacant(const stplan_device *d, const sp_detours *t, uint64_t offset, uint64_t size) {
  uint64_t addr = t->base + offset;
  return sp_arena_at(&d->arena, addr, size) != NULL || sp_arena_absent(&d->arena, addr, size) != NULL;
}

/* meets says whether a detour leads to bytes of [offset, end). */
static int meets(const sp_detours *t, uint64_t offset, uint64_t end) {
  for (int i = 0; i < t->count; i++)
    if (t->list[i].at < end && offset < t->list[i].at + length(&t->list[i]))
      return 1;
  return 0;
}

/* leave notes that the places of a range of offsets lie elsewhere from now on. */
static void leave(sp_detours *t, uint64_t offset, uint64_t size) {
  t->left = sp_round_down(offset, t->unit);
  t->left_end = sp_round_up(offset + size, t->unit);
}

/* find finds offsets for a detour. They lie in their granules as the places do at home, so that it
 * takes no more of these, and a granule stays empty behind, so that free memory of two detours never merges. */
static int find(const stplan_device *d, sp_detours *t, sp_detour *of) {
  uint64_t into = of->low % t->unit, size = length(of), bytes = sp_round_up(into + size, t->unit) + t->unit;
  for (int i = 0; i < TRIES && bytes <= t->end - t->first; i++) {
    if (bytes > t->end - t->next)
      t->next = t->first;
    of->at = t->next + into;
    t->next += bytes;
    if (!meets(t, of->at, of->at + size) && vacant(d, t, of->at, size))
      return 1;
  }
  return 0;
}

int sp_detours_make(stplan_device *d, sp_detours *t, uint64_t offset, uint64_t size) {
  if (size < t->least || !begin(d, t))
    return 0;
  int i = holding(t, offset, size);
  sp_detour was = {.low = offset, .high = offset + size, .at = offset}, new;
  if (i >= 0)
    was = t->list[i];
  new = was;
  if (i >= 0 && vacant(d, t, offset, size))
    drop(t, i);
  else if (find(d, t, &new))
    add(t, &new);
  else
    return 0;
  leave(t, was.at, length(&was));
  return 1;
}

void sp_detours_return(stplan_device *d, sp_detours *t, uint64_t offset, uint64_t size) {
  int i = holding(t, offset, size);
  if (i < 0 || !vacant(d, t, t->list[i].low, length(&t->list[i])) || !vacant(d, t, t->list[i].at, length(&t->list[i])))
    return;
  leave(t, t->list[i].at, length(&t->list[i]));
  drop(t, i);
}

int sp_detours_left(sp_detours *t, uint64_t *low, uint64_t *high) {
  if (t->left == t->left_end)
    return 0;
  *low = t->base + t->left;
  *high = t->base + t->left_end;
  t->left = t->left_end = 0;
  return 1;
}
