/* device.h: one device object, as the files that make it up share it. Functions
 * whose comment says "locked" are called with the lock held and hold it when
 * they return; they may let go of it in between where the comment says so. */
#ifndef STPLAN_DEVICE_H
#define STPLAN_DEVICE_H

#include <pthread.h>

#include "arena.h"
#include "matcher.h"
#include "plan.h"
#include "prim.h"
#include "stplan.h"
#include "streams.h"

enum { SP_ALIGNMENT = 512 };

/* Blocks up to here are small. Of the thresholds from 8 KiB to 4 MiB this one
 * reserves the least on average over the recordings (docs/results/replay.md). */
enum { SP_SMALL = 64 << 10 };

/* The largest request; far above any device, and no sum of a few overflows. */
#define SP_LARGEST (UINT64_C(1) << 48)

typedef struct sp_chunk {
  struct sp_chunk *next;
  sp_range *nodes;
} sp_chunk;

struct stplan_device {
  sp_prim prim;
  pthread_mutex_t lock;   /* everything below */
  pthread_mutex_t growth; /* one thread at a time asks the device for memory; taken before lock */
  sp_arena arena;
  sp_streams streams;
  sp_chunk *chunks;
  uint64_t limit;
  stplan_counters *counters;
  stplan_counters own; /* where counters points until they are shared */

  const sp_plan_device *plan; /* NULL without one */
  sp_matcher *matcher;
  uint64_t end[SP_ZONES]; /* where each zone's growing extent ends; 0 before there is one */
  int begun;          /* the plan's memory has been asked for */
  uint64_t plan_base; /* its address */

  /* How the plan fares lately: requests in its sequence, and the bytes of those
   * that it has a place for, as wanted and as served there. */
  uint64_t watched, wanted_bytes, placed_bytes;
  int suspended;
};

/* sp_device_stream is the index of a stream, which is added where it is new;
 * then the lock is let go of. -1 where that fails. Locked. */
int sp_device_stream(stplan_device *d, stplan_stream handle);

/* sp_device_nodes makes sure that the arena has nodes for one request. Lets go
 * of the lock where it has not. 0 where the host has no memory. Locked. */
int sp_device_nodes(stplan_device *d);

/* sp_device_begin takes the plan's memory, once. Lets go of the lock. Locked. */
void sp_device_begin(stplan_device *d);

/* sp_device_grow takes memory so that `need` bytes fit into the zone, or finds
 * that they fit by now. With `fresh` it takes all of them, as an extent of its
 * own, at *addr. Lets go of the lock. 0 where there is no memory. Locked. */
int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int fresh, uint64_t *addr);

/* sp_device_plan_zone makes the plan's memory its own, or like any other.
 * Locked. */
void sp_device_plan_zone(stplan_device *d, sp_zone zone);

void sp_device_account(stplan_device *d, int64_t reserved);

#endif
