/* device.h: one device object, as the files that make it up share it. Functions
 * whose comment says "locked" are called with the lock held and hold it when
 * they return; they may let go of it in between where the comment says so. */
#ifndef STPLAN_DEVICE_H
#define STPLAN_DEVICE_H

#include <pthread.h>

#include "arena.h"
#include "match.h"
#include "plan.h"
#include "prim.h"
#include "stplan.h"
#include "streams.h"
#include "usage.h"

enum { SP_ALIGNMENT = 512 };

/* Blocks up to here are small. In runs of 40 iterations more mixtures of experts
 * reserve more than expandable segments would with 64 KiB, 128 KiB and 1 MiB
 * (docs/results/replay.md). */
enum { SP_SMALL = 256 << 10 };

/* Memory moves for needs of at least so many bytes, below which a stall costs more
 * than it saves. Of 3, 20, 32 and 50 MiB this reserves the least over the recordings. */
#define SP_MOVE_LEAST (UINT64_C(20) << 20)

/* A plan is judged after every so many requests, and fits where so many per cent
 * of the bytes lately asked for could be served in their places. */
enum { SP_WATCH = 2048, SP_FITTING = 75 };

/* How much more may be reserved than has been allocated, in shares of it: so much
 * before idle memory of the plan moves, so much before the plan ends, and so much
 * before one ends that fits: what it asks for beside its places for a while is less
 * than what the pool would in the long run. */
typedef enum { SP_SLACK_LENDS = 300, SP_SLACK_ENDS = 100, SP_SLACK_FITS = 33 } sp_slack;

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
  int held; /* how often stplan_hold has been called without its end */
  sp_usage usage;
  stplan_seen *seen;
  void *seen_context;
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
  int suspended, given_up; /* for now; for good */
  uint64_t recorded_bytes; /* the most that the recording had allocated at the steps that the run had (match_load.h) */

  /* What moved and is not repaid yet, in bytes, and how much had been allocated in all
   * when that was reckoned. */
  uint64_t moved_debt, repaid_at;
};

/* sp_device_stream is the index of a stream, which is added where it is new;
 * then the lock is let go of. -1 where that fails. Locked. */
int sp_device_stream(stplan_device *d, stplan_stream handle);

/* sp_device_nodes makes sure that the arena has nodes for one request. Lets go
 * of the lock where it has not. 0 where the host has no memory. Locked. */
int sp_device_nodes(stplan_device *d);

/* sp_device_begin takes the plan's memory, once. Lets go of the lock. Locked. */
void sp_device_begin(stplan_device *d);

/* sp_device_lock_growth takes the growth lock, which comes before the device's.
 * Lets go of the lock. Locked. */
void sp_device_lock_growth(stplan_device *d);

/* sp_device_served says whether the plan is served: neither suspended nor over.
 * Locked. */
int sp_device_served(const stplan_device *d);

/* sp_device_may_take says whether the limit allows so many bytes more. Locked. */
int sp_device_may_take(const stplan_device *d, uint64_t bytes);

/* sp_device_grow takes memory so that `need` bytes fit into the zone, or finds
 * that they fit by now. With `fresh` it takes all of them, as an extent of its
 * own, at *addr. Lets go of the lock. 0 where there is no memory. Locked. */
int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int fresh, uint64_t *addr);

/* sp_device_commit takes memory for what is absent of [addr, addr+size). Lets go of
 * the lock. 0 where there is none. Locked. */
int sp_device_commit(stplan_device *d, uint64_t addr, uint64_t size);

/* sp_device_trim gives all idle memory back, the plan's only where `plan` is set,
 * and returns the bytes. It waits for the device. Lets go of the lock. Growth lock
 * held. Locked. */
uint64_t sp_device_trim(stplan_device *d, int plan);

/* sp_device_make_room is called before `bytes` are taken from the device for
 * addresses of [low, high). Where that would exceed the limit, or what has been
 * reserved so far, idle memory elsewhere is given back first, where there is any
 * in large pieces: it moves. Short of the limit that is done only as long as the run
 * can afford it. Where the plan is not worth it, it is given up, and the answer is 0.
 * Lets go of the lock. Growth lock held. Locked. */
int sp_device_make_room(stplan_device *d, uint64_t bytes, uint64_t low, uint64_t high);

/* sp_device_plan_zone makes the plan's memory its own, or like any other.
 * Locked. */
void sp_device_plan_zone(stplan_device *d, sp_zone zone);

/* sp_device_suspend suspends the plan, whose memory is then like any other, or
 * resumes it. Locked. */
void sp_device_suspend(stplan_device *d, int suspended);

/* sp_device_give_up suspends the plan for good. Locked. */
void sp_device_give_up(stplan_device *d);

/* sp_device_over says whether more is reserved than a `slack`th above the most that
 * has been allocated, in the recording or here, and the granules that zones begin,
 * with `taken` bytes more reserved and `more` about to be allocated. Without a
 * plan it would be about as much as has been allocated. The recording tells what the
 * run is going to need only where the run has allocated as much as it had by then;
 * and how idle memory is to be used, only while the plan fits. Locked. */
int sp_device_over(const stplan_device *d, uint64_t taken, uint64_t more, sp_slack slack);

/* sp_device_account notes that reserved bytes change. Locked. */
void sp_device_account(stplan_device *d, int64_t reserved);

/* sp_device_notify tells who watches of memory that was taken, or is about to be
 * given back. Called without the lock. Growth lock held. */
void sp_device_notify(const stplan_device *d, int taken, uint64_t addr, uint64_t bytes);

/* sp_device_describe describes a range. Locked. */
stplan_range sp_device_describe(const stplan_device *d, const sp_range *r);

/* sp_device_block is the live block at address, or NULL. Locked. */
sp_range *sp_device_block(const stplan_device *d, uint64_t address);

#endif
