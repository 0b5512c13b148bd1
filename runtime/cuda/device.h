/* device.h: one device object, and what every part of it needs: locks, nodes,
 * streams, the limit, the counters. Its parts are device_*.c:
 *
 *   device_open      opens and closes the object
 *   device_malloc    requests
 *   device_free      frees, and uses by other streams
 *   device_plan      how the plan is doing: served, suspended, given up, ended
 *   device_detour    has places lie elsewhere while something is in the way
 *   device_install   puts a plan in place while the run goes on
 *   device_grow      takes memory from the device
 *   device_move      moves idle memory to where it is needed, device_debt says how much
 *   device_carry     moves it without waiting for it
 *   device_trim      gives idle memory back to the device
 *   device_libraries leaves a little of the device to libraries
 *   device_pause     gives all of it to others, and takes it back
 *   device_hold      not while a graph is captured
 *   device_pins      nor memory whose address somebody outside knows
 *   device_history   keeps what was asked for, if it is told to
 *   device_learn     when a plan is to be made of that
 *   device_query     what callers ask about blocks and memory
 *
 * "Locked" in a comment means: called with the lock held, which is held again on
 * return. If the function lets go of the lock in between, the comment says so.
 * Other threads may then have changed anything but the caller's own blocks. */
#ifndef STPLAN_DEVICE_H
#define STPLAN_DEVICE_H

#include <pthread.h>

#include "arena.h"
#include "device_debt.h"
#include "device_learn.h"
#include "device_libraries.h"
#include "halves.h"
#include "history.h"
#include "prim.h"
#include "sizes.h"
#include "stplan.h"
#include "streams.h"
#include "usage.h"

/* Bytes. The largest request: far above any device, and no sum of a few overflows. */
#define SP_LARGEST (UINT64_C(1) << 48)

typedef struct sp_pin sp_pin; /* private to device_pins.c */

/* Memory that is on its way to other addresses; device_carry.c. The growth lock is held. */
typedef struct {
  sp_range *list;       /* idle ranges to be carried, linked by chain; empty without the growth lock */
  uint64_t bytes;       /* of these */
  uint64_t unit;        /* of the granules that they go to */
  int stream;           /* index of the one that asks for memory */
  sp_range *used;       /* ranges that just have been */
  struct sp_left *left; /* addresses that were left, and where the memory still is */
  int whole;            /* large granules are not put together from small ones */
  int failed;           /* calls of the device that did not carry, since the last one that did */
  int skip;             /* one has just failed: nothing is carried for the request that is under way */
} sp_carry;

typedef struct sp_chunk {
  struct sp_chunk *next;
  sp_range *nodes;
} sp_chunk;

struct stplan_device {
  sp_prim prim;
  pthread_mutex_t lock;   /* everything below */
  pthread_mutex_t growth; /* held while memory is taken from the device or given back; taken before lock */
  sp_arena arena;
  sp_halves halves; /* requests of which two are to fit where one twice as large was */
  sp_streams streams;
  sp_chunk *chunks; /* all nodes of the arena */
  sp_range *deferred; /* freed, but not usable yet (device_defer.h), linked by chain */
  uint64_t end[SP_ZONES]; /* address where each zone's growing extent ends; 0 if it has none */
  uint64_t most[SP_ZONES]; /* address where the room of that extent ends */
  uint64_t limit;         /* of reserved bytes; 0: none */
  int kept;               /* memory is never given back */
  int still;              /* memory does not move */
  int refused;            /* the device has just refused memory: what is idle moves, as at the limit; growth lock held */
  stplan_status held_up;  /* why not all could be given back the last time, or STPLAN_OK; growth lock held */
  uint64_t before;        /* reserved bytes before a pause, as long as fewer are reserved; 0 if not paused */
  uint64_t forgotten[SP_ZONES]; /* bytes that it gave away together with their addresses */
  sp_carry carry;
  sp_pin *pins;
  stplan_seen *seen;      /* of stplan_watch; changed with the growth lock held */
  void *seen_context;
  sp_usage usage;
  struct sp_device_plan *plan; /* private to device_plan.c; NULL if none is to be served */
  struct sp_device_plan *next; /* likewise: follows the run until it is put in place; NULL if there is none */
  uint64_t plans;              /* how many there have been */
  sp_history *history;         /* NULL if none is kept */
  sp_learn learn;
  sp_debt debt;
  sp_libraries libraries;

  /* What the object counts, and decides by. `shared` is a copy for others, in a
   * mapped file that they may also write: it is written here and never read.
   * The counters themselves if there is no file. */
  stplan_counters counters;
  stplan_counters *shared;
};

/* SP_COUNT adds to a counter, SP_SET sets one, by its name in stplan_counters.
 * Both also write the copy. Nothing else changes counters. Locked. */
#define SP_COUNT(d, counter, n) ((d)->shared->counter = (d)->counters.counter += (n))
#define SP_SET(d, counter, value) ((d)->shared->counter = (d)->counters.counter = (value))

static inline void sp_device_lock(stplan_device *d) { pthread_mutex_lock(&d->lock); }
static inline void sp_device_unlock(stplan_device *d) { pthread_mutex_unlock(&d->lock); }

/* sp_device_moves says whether granules come and go: memory is virtual, and may move.
 * Otherwise it comes and goes in whole pieces. Locked, or the growth lock held. */
static inline int sp_device_moves(const stplan_device *d) { return d->prim.partial && !d->still; }

/* sp_device_lock_growth takes the growth lock, which comes before the device's.
 * sp_device_unlock_growth lets go of it. Locked; the first lets go of the lock. */
void sp_device_lock_growth(stplan_device *d);
void sp_device_unlock_growth(stplan_device *d);

/* sp_device_stream is the index of a stream. A new one is added; that lets go
 * of the lock. -1 if it cannot be. Locked. */
int sp_device_stream(stplan_device *d, stplan_stream handle);

/* sp_device_nodes makes sure that the arena has nodes for one request. If it
 * has not, it lets go of the lock. 0 without host memory. Locked. */
int sp_device_nodes(stplan_device *d);

/* sp_device_may_take says whether the limit allows `bytes` more to be reserved, and what is left to libraries does
 * (sp_libraries_spare). Locked. */
int sp_device_may_take(const stplan_device *d, uint64_t bytes);

/* sp_device_left asks the device how many bytes it has left, UINT64_MAX if it does not say. Locked; lets go of the lock. */
uint64_t sp_device_left(stplan_device *d);

/* sp_device_account adds to the reserved bytes, or takes from them. Locked. */
void sp_device_account(stplan_device *d, int64_t reserved);

/* sp_device_forget_ends forgets growing extents that are gone: their addresses may be
 * another's from now on. Locked. */
void sp_device_forget_ends(stplan_device *d);

/* sp_device_notify calls the function of stplan_watch, if there is one. Called without
 * the lock. Growth lock held. */
void sp_device_notify(const stplan_device *d, stplan_event event, uint64_t addr, uint64_t bytes);

#endif
