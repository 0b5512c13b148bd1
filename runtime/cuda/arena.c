#include "arena.h"

#include <stdlib.h>
#include <string.h>

#include "sizes.h"

/* A range that needs no wait may be larger than the request by 1/2^NEAR_FIT_SHIFT
 * of it, an eighth. A larger share saves waits and wastes memory. */
enum { NEAR_FIT_SHIFT = 3 };

/* Ranges that are looked at for one that needs no wait: it bounds the time of a request. */
enum { NEAR_FITS = 16 };

/* Ranges that are looked at for the one at the lowest address: it bounds the time of a
 * request, each being a line of the cache or two. Of 8, 16, 32, 64 and all of them, 16
 * has the fewest recordings that reserve or move more than by best fit
 * (docs/results/pool.md). */
enum { LOW_LOOKS = 16 };

/* Ranges that are looked at for one that needs no wait if nothing can be waited for: it
 * bounds the time of a request that is rare. What is not found costs new memory. */
enum { READY_LOOKS = 256 };

static sp_range *of_addr(sp_node *n) { return n == NULL ? NULL : (sp_range *)((char *)n - offsetof(sp_range, by_addr)); }
static sp_range *of_size(sp_node *n) { return n == NULL ? NULL : (sp_range *)((char *)n - offsetof(sp_range, by_size)); }

enum { CACHE_LINE = 64 };

sp_range *sp_arena_chunk(size_t nodes) {
  _Static_assert(sizeof(sp_range) % CACHE_LINE == 0, "nodes lie side by side");
  sp_range *chunk = aligned_alloc(CACHE_LINE, nodes * sizeof *chunk);
  return chunk == NULL ? NULL : memset(chunk, 0, nodes * sizeof *chunk);
}

void sp_arena_pool(sp_arena *a, sp_range *chunk, size_t nodes) {
  for (size_t i = 0; i < nodes; i++) {
    chunk[i].next = a->pool;
    a->pool = &chunk[i];
  }
  a->pooled += nodes;
}

/* draw takes a node from the pool, all zero. */
static sp_range *draw(sp_arena *a) {
  sp_range *r = a->pool;
  a->pool = r->next;
  a->pooled--;
  memset(r, 0, sizeof *r);
  return r;
}

/* drop puts a node back. Its size of 0 tells hints that it holds no address. */
static void drop(sp_arena *a, sp_range *r) {
  r->size = 0;
  r->next = a->pool;
  a->pool = r;
  a->pooled++;
}

/* hint is where the range of a block's address is remembered. The factor is
 * 2^64 divided by the golden ratio (Knuth, multiplicative hashing). */
static size_t hint(uint64_t addr) { return (addr >> SP_ALIGNMENT_BITS) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SP_HINT_BITS); }

static int holds(const sp_range *r, uint64_t addr) { return r != NULL && addr - r->addr < r->size; }

/* remembered is the range that holds a byte, if it is one of those that are remembered. */
static sp_range *remembered(const sp_arena *a, uint64_t addr) {
  if (holds(a->nearby[0], addr))
    return a->nearby[0];
  if (holds(a->nearby[1], addr))
    return a->nearby[1];
  sp_range *r = a->hints[hint(addr)];
  return holds(r, addr) ? r : NULL;
}

static sp_tree *index_of(sp_arena *a, const sp_range *r) { return r->absent ? &a->absent : &a->gaps[r->zone]; }

static void index_gap(sp_arena *a, sp_range *r) {
  r->taken = 0;
  r->by_size.major = r->size;
  r->by_size.minor = r->addr;
  sp_tree_insert(index_of(a, r), &r->by_size);
}

static void unindex_gap(sp_arena *a, sp_range *r) { sp_tree_erase(index_of(a, r), &r->by_size); }

/* reindex_gap follows a free range's new bounds. */
static void reindex_gap(sp_arena *a, sp_range *r) { sp_tree_rekey(index_of(a, r), &r->by_size, r->size, r->addr); }

/* move changes where a range starts; its place in the order stays. */
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
  sp_tree_insert_between(&a->all, &r->by_addr, r->prev == NULL ? NULL : &r->prev->by_addr, next == NULL ? NULL : &next->by_addr);
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

/* mergeable says whether two neighbours are to be one range. */
static int mergeable(const sp_range *low, const sp_range *high) {
  return low != NULL && high != NULL && !low->taken && !high->taken && low->absent == high->absent &&
         low->lent == high->lent && !high->first && low->zone == high->zone;
}

/* settle merges a range that is neither taken nor indexed with its neighbours,
 * indexes the result, and returns it. */
static sp_range *settle(sp_arena *a, sp_range *r) {
  sp_range *low = r->prev, *high = r->next;
  r->taken = 0;
  int below = mergeable(low, r), above = mergeable(r, high);
  if (below) {
    low->size += r->size;
    sp_clock_merge(&low->uses, &r->uses);
    unlink_range(a, r);
    if (above) {
      unindex_gap(a, high);
      low->size += high->size;
      sp_clock_merge(&low->uses, &high->uses);
      unlink_range(a, high);
    }
    reindex_gap(a, low);
    return low;
  }
  if (above) {
    high->size += r->size;
    high->first = r->first;
    sp_clock_merge(&high->uses, &r->uses);
    uint64_t addr = r->addr;
    unlink_range(a, r);
    move(high, addr);
    reindex_gap(a, high);
    return high;
  }
  index_gap(a, r);
  return r;
}

void sp_arena_give(sp_arena *a, sp_range *r) {
  uint64_t addr = r->addr;
  a->nearby[1] = a->hints[hint(addr)] = settle(a, r);
}

void sp_arena_add(sp_arena *a, uint64_t addr, uint64_t size, uint64_t unit, sp_zone zone, int grows, sp_presence presence) {
  sp_range *next = of_addr(sp_tree_at_least(&a->all, addr, 0));
  sp_range *r = draw(a);
  r->addr = addr;
  r->size = size;
  r->zone = (uint8_t)zone;
  r->absent = presence == SP_ABSENT;
  r->unit = (uint16_t)(unit / a->granularity);
  link_before(a, r, next);
  r->first = !(grows && r->prev != NULL && r->prev->zone == zone && r->prev->addr + r->prev->size == addr);
  int small = zone == SP_ZONE_SMALL;
  a->extents += r->first;
  a->small_extents += r->first && small;
  a->small_bytes += small && presence == SP_FREE ? size : 0;
  settle(a, r);
}

uint64_t sp_arena_largest(const sp_arena *a) {
  uint64_t largest = 0;
  for (int zone = 0; zone < SP_ZONES; zone++) {
    const sp_range *r = of_size(sp_tree_at_most(&a->gaps[zone], UINT64_MAX, UINT64_MAX));
    if (r != NULL && r->size > largest)
      largest = r->size;
  }
  return largest;
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

sp_range *sp_arena_lowest(const sp_arena *a, sp_zone zone, uint64_t size) {
  sp_range *r = of_size(sp_tree_at_least(&a->gaps[zone], size, 0)), *lowest = r;
  for (int i = 0; i < LOW_LOOKS && r != NULL; i++) {
    if (r->addr < lowest->addr)
      lowest = r;
    r = of_size(sp_tree_next(&r->by_size));
  }
  return lowest;
}

sp_range *sp_arena_ready(const sp_arena *a, const sp_streams *s, sp_zone zone, uint64_t size, int stream) {
  sp_range *r = of_size(sp_tree_at_least(&a->gaps[zone], size, 0));
  for (int i = 0; i < READY_LOOKS && r != NULL; i++) {
    if (!sp_streams_waits(s, &r->uses, stream))
      return r;
    r = of_size(sp_tree_next(&r->by_size));
  }
  return NULL;
}

sp_range *sp_arena_larger(const sp_range *gap) { return of_size(sp_tree_next(&gap->by_size)); }

sp_range *sp_arena_next(const sp_tree *of, uint64_t size, uint64_t addr) { return of_size(sp_tree_at_least(of, size, addr)); }

sp_range *sp_arena_holding(const sp_arena *a, uint64_t addr) {
  sp_range *r = remembered(a, addr);
  if (r != NULL)
    return r;
  r = of_addr(sp_tree_at_most(&a->all, addr, 0));
  return holds(r, addr) ? r : NULL;
}

sp_range *sp_arena_below(const sp_arena *a, uint64_t addr) {
  return addr == 0 ? NULL : of_addr(sp_tree_at_most(&a->all, addr - 1, UINT64_MAX));
}

sp_range *sp_arena_at(const sp_arena *a, uint64_t addr, uint64_t size) {
  sp_range *r = sp_arena_holding(a, addr);
  return r == NULL || r->taken || r->absent || r->size - (addr - r->addr) < size ? NULL : r;
}

/* split makes a new range of the first `size` bytes of another, of the same
 * kind, and returns it. It is not indexed. */
static sp_range *split(sp_arena *a, sp_range *r, uint64_t size) {
  sp_range *low = draw(a);
  low->addr = r->addr;
  low->size = size;
  low->zone = r->zone;
  low->absent = r->absent;
  low->lent = r->lent;
  low->unit = r->unit;
  low->first = r->first;
  low->uses = r->uses;
  move(r, r->addr + size);
  r->size -= size;
  r->first = 0;
  link_before(a, low, r);
  return low;
}

sp_range *sp_arena_take(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t size) {
  uint64_t low = addr - gap->addr;
  sp_range *taken = gap;
  if (low > 0 && low + size < gap->size) {
    index_gap(a, split(a, gap, low));
    taken = split(a, gap, size);
    reindex_gap(a, gap);
  } else if (low > 0) {
    sp_range *rest = split(a, gap, low);
    unindex_gap(a, gap);
    index_gap(a, rest);
  } else if (size < gap->size) {
    taken = split(a, gap, size);
    reindex_gap(a, gap);
  } else {
    unindex_gap(a, gap);
  }
  taken->taken = 1;
  taken->leaving = 0;
  taken->recorded = 0;
  taken->step = SP_NO_STEP;
  a->hints[hint(addr)] = taken;
  a->nearby[0] = taken->next;
  return taken;
}

sp_range *sp_arena_find(const sp_arena *a, uint64_t addr) {
  sp_range *r = sp_arena_holding(a, addr);
  return r != NULL && r->addr == addr && r->taken ? r : NULL;
}

sp_range *sp_arena_cut(sp_arena *a, sp_range *r, uint64_t size) {
  sp_range *low = split(a, r, size);
  low->taken = 1;
  low->leaving = r->leaving;
  low->step = SP_NO_STEP;
  return low;
}

/* forget drops the absent ranges of an extent from its first one on, and returns how many
 * of their bytes were lent. */
static uint64_t forget(sp_arena *a, sp_range *r) {
  uint64_t lent = 0;
  a->extents--;
  a->small_extents -= r->zone == SP_ZONE_SMALL;
  for (int last = 0; !last;) {
    sp_range *next = r->next;
    last = next == NULL || next->first;
    lent += r->lent ? r->size : 0;
    unindex_gap(a, r);
    unlink_range(a, r);
    r = next;
  }
  return lent;
}

uint64_t sp_arena_decommit(sp_arena *a, sp_range *r, int lent) {
  r->absent = 1;
  r->lent = (uint8_t)lent;
  a->small_bytes -= r->zone == SP_ZONE_SMALL ? r->size : 0;
  r = settle(a, r);
  const sp_range *last = r;
  while (!r->first && r->prev->absent)
    r = r->prev;
  while (last->next != NULL && !last->next->first && last->next->absent)
    last = last->next;
  return r->first && (last->next == NULL || last->next->first) ? forget(a, r) : 0;
}

sp_range *sp_arena_lent(const sp_arena *a, uint64_t addr) {
  sp_range *r = sp_arena_below(a, addr);
  while (r != NULL && !r->lent)
    r = r->prev;
  return r;
}

void sp_arena_unlend(sp_arena *a) {
  for (sp_range *r = sp_arena_lent(a, UINT64_MAX); r != NULL; r = sp_arena_lent(a, r->addr)) {
    unindex_gap(a, r);
    r->lent = 0;
    r = settle(a, r);
  }
}

void sp_arena_commit(sp_arena *a, sp_range *absent, uint64_t addr, uint64_t size, const sp_clock *uses) {
  sp_range *r = sp_arena_take(a, absent, addr, size);
  r->absent = r->lent = 0;
  r->uses = *uses;
  a->small_bytes += r->zone == SP_ZONE_SMALL ? size : 0;
  settle(a, r);
}

sp_range *sp_arena_absent(const sp_arena *a, uint64_t addr, uint64_t size) {
  sp_range *found = NULL, *r = sp_arena_holding(a, addr);
  for (; r != NULL && !r->taken; r = r->next) {
    if (found == NULL && r->absent)
      found = r;
    if (r->addr + r->size - addr >= size)
      return found;
    if (r->next == NULL || r->next->first || r->next->zone != r->zone)
      return NULL;
  }
  return NULL;
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
