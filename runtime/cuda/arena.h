/* arena.h: device memory as ranges. The ranges of an extent (what the device
 * gave in one piece, or grew in place) tile it in address order; each is free
 * or taken. Free neighbours are always merged, except across extents and zones.
 * Every operation takes O(log n), and none allocates: nodes come from a pool
 * that is filled beforehand. */
#ifndef STPLAN_ARENA_H
#define STPLAN_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "streams.h"
#include "tree.h"

/* A zone is an index of free ranges. Small blocks have one, so that one that
 * lives long does not split a gap that large ones need; all others share one.
 * What a plan lays out is a zone of its own, so that requests off plan do not
 * settle there unasked. */
typedef enum { SP_ZONE_OPEN, SP_ZONE_SMALL, SP_ZONE_PLAN, SP_ZONES } sp_zone;

typedef struct sp_range {
  sp_node by_addr, by_size; /* by_size: free ranges only */
  struct sp_range *prev, *next;
  uint64_t addr, size;
  sp_clock uses;     /* free: who used it last */
  uint64_t recorded; /* taken: streams of record_stream, one bit each */
  uint32_t stream;   /* taken: index of its own stream */
  uint8_t zone;
  uint8_t first; /* starts an extent: never merged with what lies before */
  uint8_t taken;
  uint8_t leaving; /* taken, and its free is under way */
} sp_range;

typedef struct {
  sp_tree all, gaps[SP_ZONES];
  sp_range *last; /* by address */
  sp_range *pool; /* unused nodes, linked by next */
  size_t pooled;
} sp_arena;

/* Nodes that one request can need at most. */
enum { SP_ARENA_NODES = 3 };

/* sp_arena_chunk makes nodes, NULL without memory; sp_arena_pool hands them to
 * the arena, which never frees them. */
sp_range *sp_arena_chunk(size_t nodes);
void sp_arena_pool(sp_arena *a, sp_range *chunk, size_t nodes);

/* sp_arena_add adds device memory, free, with a clock of zero. Where it directly
 * follows a range of the same zone and `grows` is set, it belongs to that one's
 * extent. */
void sp_arena_add(sp_arena *a, uint64_t addr, uint64_t size, sp_zone zone, int grows);

/* sp_arena_fit is the best free range for size bytes, or NULL: the smallest;
 * among those up to an eighth larger, one that `stream` need not wait for. */
sp_range *sp_arena_fit(const sp_arena *a, const sp_streams *s, sp_zone zone, uint64_t size, int stream);

/* sp_arena_larger is the next free range of the same zone by size, then address,
 * or NULL. */
sp_range *sp_arena_larger(const sp_range *gap);

/* sp_arena_at is the free range that holds all of [addr, addr+size), or NULL. */
sp_range *sp_arena_at(const sp_arena *a, uint64_t addr, uint64_t size);

/* sp_arena_take takes [addr, addr+size) of a free range that holds it, and
 * returns it, its clock that of the free range. */
sp_range *sp_arena_take(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t size);

/* sp_arena_find is the taken range that starts at addr, or NULL. */
sp_range *sp_arena_find(const sp_arena *a, uint64_t addr);

/* sp_arena_give makes a taken range free, with the clock it has. */
void sp_arena_give(sp_arena *a, sp_range *r);

/* sp_arena_cut removes the free bytes [addr, end) of a range from the arena; what
 * lies behind them begins an extent. */
void sp_arena_cut(sp_arena *a, sp_range *gap, uint64_t addr, uint64_t end);

/* sp_arena_rezone puts the ranges that start in [low, high) into another zone. It
 * looks at each of them. */
void sp_arena_rezone(sp_arena *a, uint64_t low, uint64_t high, sp_zone zone);

#endif
