#include "arena.h"

#include <stdlib.h>
#include <string.h>

/* An eighth: how much larger a range may be for the sake of no wait, and how
 * many are looked at. */
enum { NEAR_FIT_SHIFT = 3, NEAR_FITS = 16 };

static sp_range *of_addr(sp_node *n) { return n == NULL ? NULL : (sp_range *)((char *)n - offsetof(sp_range, by_addr)); }
static sp_range *of_size(sp_node *n) { return n == NULL ? NULL : (sp_range *)((char *)n - offsetof(sp_range, by_size)); }

sp_range *sp_arena_chunk(size_t nodes) { return calloc(nodes, sizeof(sp_range)); }

void sp_arena_pool(sp_arena *a, sp_range *chunk, size_t nodes) {
  for (size_t i = 0; i < nodes; i++) {
    chunk[i].next = a->pool;
    a->pool = &chunk[i];
  }
  a->pooled += nodes;
}

static sp_range *draw(sp_arena *a) {
  sp_range *r = a->pool;
  a->pool = r->next;
  a->pooled--;
  memset(r, 0, sizeof *r);
  return r;
}

static void drop(sp_arena *a, sp_range *r) {
  r->next = a->pool;
  a->pool = r;
  a->pooled++;
}

static void index_gap(sp_arena *a, sp_range *r) {
  r->taken = 0;
  r->by_size.major = r->size;
  r->by_size.minor = r->addr;
  sp_tree_insert(&a->gaps[r->zone], &r->by_size);
}

static void unindex_gap(sp_arena *a, sp_range *r) { sp_tree_erase(&a->gaps[r->zone], &r->by_size); }

/* move changes where a range starts without changing its place in the order. */
static void move(sp_range *r, uint64_t addr) { r->addr = r->by_addr.major = addr; }

/* link_before puts a new range into the order before another, or last. */
static void link_before(sp_arena *a, sp_range *r, sp_range *next) {
  r->next = next;
  r->prev = next == NULL ? a->last : next->prev;
  if (r->prev != NULL)
    r->prev->next = r;
  if (next == NULL)
    a->last = r;
  else
    next->prev = r;
  r->by_addr.major = r->addr;
  sp_tree_insert(&a->all, &r->by_addr);
}

static void unlink_range(sp_arena *a, sp_range *r) {
  if (r->prev != NULL)
    r->prev->next = r->next;
  if (r->next == NULL)
    a->last = r->prev;
  else
    r->next->prev = r->prev;
  sp_tree_erase(&a->all, &r->by_addr);
  drop(a, r);
}

static int mergeable(const sp_range *low, const sp_range *high) {
  return low != NULL && high != NULL && !low->taken && !high->taken && !high->first && low->zone == high->zone;
}

void sp_arena_give(sp_arena *a, sp_range *r) {
  sp_range *low = r->prev, *high = r->next;
  r->taken = 0;
  if (mergeable(r, high)) {
    unindex_gap(a, high);
    r->size += high->size;
    sp_clock_merge(&r->uses, &high->uses);
    unlink_range(a, high);
  }
  if (mergeable(low, r)) {
    unindex_gap(a, low);
    low->size += r->size;
    sp_clock_merge(&low->uses, &r->uses);
    unlink_range(a, r);
    r = low;
  }
  index_gap(a, r);
}

void sp_arena_add(sp_arena *a, uint64_t addr, uint64_t size, sp_zone zone, int grows) {
  sp_range *next = of_addr(sp_tree_at_least(&a->all, addr, 0));
  sp_range *r = draw(a);
  r->addr = addr;
  r->size = size;
  r->zone = (uint8_t)zone;
  link_before(a, r, next);
  r->first = !(grows && r->prev != NULL && r->prev->zone == zone && r->prev->addr + r->prev->size == addr);
  sp_arena_give(a, r);
}

sp_range *sp_arena_fit(const sp_arena *a, const sp_streams *s, sp_zone zone, uint64_t size, int stream) {
  sp_range *best = of_size(sp_tree_at_least(&a->gaps[zone], size, 0));
  sp_range *r = best;
  uint64_t limit = size + (size >> NEAR_FIT_SHIFT);
  for (int i = 0; i < NEAR_FITS && r != NULL && r->size <= limit; i++) {
    if (!sp_streams_waits(s, &r->uses, stream))
      return r;
    r = of_size(sp_tree_next(&r->by_size));
  }
  return best;
}

sp_range *sp_arena_larger(const sp_range *gap) { return of_size(sp_tree_next(&gap->by_size)); }

sp_range *sp_arena_at(const sp_arena *a, uint64_t addr, uint64_t size) {
  sp_range *r = of_addr(sp_tree_at_most(&a->all, addr, 0));
  if (r == NULL || r->taken || addr - r->addr >= r->size || r->size - (addr - r->addr) < size)
    return NULL;
  return r;
}

sp_range *sp_arena_take(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t size) {
  uint64_t low = addr - gap->addr, high = gap->size - low - size;
  unindex_gap(a, gap);
  if (low > 0) {
    sp_range *rest = draw(a);
    rest->addr = gap->addr;
    rest->size = low;
    rest->zone = gap->zone;
    rest->uses = gap->uses;
    rest->first = gap->first;
    gap->first = 0;
    move(gap, addr);
    link_before(a, rest, gap);
    index_gap(a, rest);
  }
  if (high > 0) {
    sp_range *rest = draw(a);
    rest->addr = addr + size;
    rest->size = high;
    rest->zone = gap->zone;
    rest->uses = gap->uses;
    link_before(a, rest, gap->next);
    index_gap(a, rest);
  }
  gap->size = size;
  gap->taken = 1;
  gap->leaving = 0;
  gap->recorded = 0;
  return gap;
}

sp_range *sp_arena_find(const sp_arena *a, uint64_t addr) {
  sp_range *r = of_addr(sp_tree_at_most(&a->all, addr, 0));
  return r != NULL && r->addr == addr && r->taken ? r : NULL;
}

void sp_arena_cut(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t end) {
  sp_range *r = sp_arena_take(a, gap, addr, end - addr);
  if (r->next != NULL)
    r->next->first = 1;
  unlink_range(a, r);
}

void sp_arena_rezone(sp_arena *a, uint64_t low, uint64_t high, sp_zone zone) {
  sp_range *r = of_addr(sp_tree_at_least(&a->all, low, 0));
  for (; r != NULL && r->addr < high; r = r->next) {
    if (!r->taken)
      unindex_gap(a, r);
    r->zone = (uint8_t)zone;
    if (!r->taken)
      index_gap(a, r);
  }
}
