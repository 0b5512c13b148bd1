/* arena.h: device memory as ranges. An extent is addresses that the device gave in
 * one piece, or that grew in place. Its ranges follow one another without a gap,
 * each of them free, taken, or absent: addresses without memory at present. Free
 * neighbours are always merged, and so are absent ones that are alike in being lent or
 * not, except across extents and zones. Every operation takes O(log n) time unless it says otherwise, and none
 * allocates: nodes come from a pool that is filled beforehand. */
#ifndef STPLAN_ARENA_H
#define STPLAN_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "streams.h"
#include "tree.h"

/* A zone is an index of free ranges. Small blocks have one of their own, so
 * that a small block that lives long does not split a gap that large ones need;
 * all other blocks share two, the second of which has large granules (device_grow.c). The
 * memory of a plan is one as well, so that requests off plan are not served there by
 * accident. */
typedef enum { SP_ZONE_OPEN, SP_ZONE_LARGE, SP_ZONE_SMALL, SP_ZONE_PLAN, SP_ZONES } sp_zone;

/* How many of the least granules a granule of an extent may have. */
enum { SP_UNIT_MOST = UINT16_MAX };

/* No step of a plan: the block is not at a step's own place. */
#define SP_NO_STEP UINT64_MAX

/* sp_range has four lines of the cache, which a training step empties between two
 * requests: the order by address, what a range is, the order by size, its uses. */
typedef struct sp_range {
  sp_node by_addr;
  struct sp_range *prev, *next;

  uint64_t addr, size; /* size 0: an unused node */
  uint64_t recorded;   /* taken: streams of record_stream, one bit each */
  uint64_t step;       /* taken: step of the plan whose place this is, or SP_NO_STEP */
  uint64_t requested;  /* taken: bytes that the program asked for */
  struct sp_range *chain; /* leaving: the next one in a list of ranges to be given back */
  uint32_t stream;     /* taken: index of its own stream */
  uint8_t zone;
  uint8_t first; /* starts an extent: never merged with what lies before */
  uint8_t taken;
  uint8_t leaving; /* taken, but not a live block: its free is under way, or it is being given back to the device */
  uint8_t absent;
  uint8_t lent;        /* absent: its memory was given away, to be taken back (device_pause.c) */
  uint16_t unit;       /* of the least granules, how many make one of its extent's */
  uint32_t number;     /* taken: of its allocation in the history, or 0 */

  sp_node by_size; /* free and absent ranges only */
  sp_clock uses;   /* free: when each stream used it last */
} sp_range;

/* For 2^SP_HINT_BITS addresses of blocks the arena remembers the range, so that
 * it is found without a walk through a tree: a program gets the same addresses
 * again and again. That takes 128 KiB for each device; fewer would more often
 * be overwritten by another address. */
enum { SP_HINT_BITS = 14, SP_HINTS = 1 << SP_HINT_BITS };

typedef struct {
  sp_tree all, gaps[SP_ZONES];
  sp_tree absent; /* by size, of all zones */
  sp_range *last; /* by address */
  sp_range *pool; /* unused nodes, linked by next */
  size_t pooled;
  uint64_t extents;
  uint64_t small_extents, small_bytes; /* those of small blocks, and their bytes that have memory */
  uint64_t granularity; /* of the device (prim.h) */
  sp_range *nearby[2]; /* the range behind the last one taken, and the last one given: the next request is often there */
  sp_range *hints[SP_HINTS]; /* by a hash of the address: the range that held it last */
} sp_arena;

/* Nodes that there have to be before a request. One operation takes two at most; another
 * thread that waits for the device at that time needs two when the device answers. */
enum { SP_ARENA_NODES = 4 };

/* sp_arena_chunk makes nodes; NULL without host memory. sp_arena_pool hands
 * them to the arena, which never frees them. */
sp_range *sp_arena_chunk(size_t nodes);
void sp_arena_pool(sp_arena *a, sp_range *chunk, size_t nodes);

/* sp_arena_add adds device memory, free and never used, or addresses that are
 * absent. If they directly follow a range of the same zone and `grows` is set,
 * they belong to its extent. `unit` is the bytes of its granules, at most SP_UNIT_MOST times the
 * arena's granularity. */
typedef enum { SP_FREE, SP_ABSENT } sp_presence;
void sp_arena_add(sp_arena *a, uint64_t addr, uint64_t size, uint64_t unit, sp_zone zone, int grows, sp_presence presence);

/* sp_arena_unit is how many bytes a granule of a range's extent has. Granules begin at
 * multiples of it. */
static inline uint64_t sp_arena_unit(const sp_arena *a, const sp_range *r) { return r->unit * a->granularity; }

/* sp_arena_fit is the best free range for `size` bytes, or NULL: the smallest that fits,
 * or one up to an eighth larger than the request that `stream` need not wait for. */
sp_range *sp_arena_fit(const sp_arena *a, const sp_streams *s, sp_zone zone, uint64_t size, int stream);

/* sp_arena_lowest is the free range at the lowest address, of the 16 smallest that fit; NULL
 * if none does. */
sp_range *sp_arena_lowest(const sp_arena *a, sp_zone zone, uint64_t size);

/* sp_arena_ready is a free range for `size` bytes that `stream` need not wait for, or NULL:
 * the smallest of those that are looked at. */
sp_range *sp_arena_ready(const sp_arena *a, const sp_streams *s, sp_zone zone, uint64_t size, int stream);

/* sp_arena_largest is the size of the largest free range, 0 if there is none. */
uint64_t sp_arena_largest(const sp_arena *a);

/* Free ranges of a zone are in the order of their sizes, then addresses; so are
 * absent ranges. sp_arena_next is the first in an index that is not before this size
 * and address, and sp_arena_larger the one after a range. NULL if there is none. */
sp_range *sp_arena_larger(const sp_range *gap);
sp_range *sp_arena_next(const sp_tree *of, uint64_t size, uint64_t addr);

/* sp_arena_holding is the range that holds the byte at addr, or NULL. */
sp_range *sp_arena_holding(const sp_arena *a, uint64_t addr);

/* sp_arena_below is the last range that starts below addr, or NULL. */
sp_range *sp_arena_below(const sp_arena *a, uint64_t addr);

/* sp_arena_at is the free range that holds all of [addr, addr+size), or NULL. */
sp_range *sp_arena_at(const sp_arena *a, uint64_t addr, uint64_t size);

/* sp_arena_take takes [addr, addr+size) of a free range that holds it, and
 * returns that. Its uses are those of the free range. */
sp_range *sp_arena_take(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t size);

/* sp_arena_find is the taken range that starts at addr, or NULL. */
sp_range *sp_arena_find(const sp_arena *a, uint64_t addr);

/* sp_arena_give makes a taken range free, with the uses that it has. */
void sp_arena_give(sp_arena *a, sp_range *r);

/* sp_arena_cut cuts the first `size` bytes off a taken range that is longer, and returns
 * them, which are taken as well. */
sp_range *sp_arena_cut(sp_arena *a, sp_range *r, uint64_t size);

/* sp_arena_decommit makes a taken range absent, and lent if that is set. An extent that has
 * no memory left is forgotten. The answer is how many bytes of it were lent; 0 if it is not. */
uint64_t sp_arena_decommit(sp_arena *a, sp_range *r, int lent);

/* sp_arena_lent is the last absent range that starts below addr and is lent, or NULL. It
 * takes O(n) time. sp_arena_unlend has no range be lent any more, in O(n log n). */
sp_range *sp_arena_lent(const sp_arena *a, uint64_t addr);
void sp_arena_unlend(sp_arena *a);

/* sp_arena_starts says whether a range starts a piece of memory: what lies before it has
 * no memory at present, or is another piece. sp_arena_ends says the same of its end. */
static inline int sp_arena_starts(const sp_range *r) { return r->first || r->prev->absent; }
static inline int sp_arena_ends(const sp_range *r) { return r->next == NULL || r->next->first || r->next->absent; }

/* sp_arena_commit makes [addr, addr+size) of an absent range free, with these uses of its memory. */
void sp_arena_commit(sp_arena *a, sp_range *absent, uint64_t addr, uint64_t size, const sp_clock *uses);

/* sp_arena_absent is the first absent range that has bytes of [addr, addr+size). NULL if
 * there is none, if some of the bytes are taken, or if some lie outside the arena. */
sp_range *sp_arena_absent(const sp_arena *a, uint64_t addr, uint64_t size);

/* sp_arena_rezone puts the ranges that start in [low, high) into another zone.
 * It takes O(log n) time for each of them. */
void sp_arena_rezone(sp_arena *a, uint64_t low, uint64_t high, sp_zone zone);

#endif
