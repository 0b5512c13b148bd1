/* device.c: device objects, their streams, nodes and counters. */
#define _POSIX_C_SOURCE 200809L

#include "device.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_NODES = 1024 };

stplan_status stplan_open(const sp_prim *prim, const stplan_plan *plan, int ordinal, stplan_device **device) {
  *device = NULL;
  const sp_plan_device *of = plan == NULL ? NULL : sp_plan_find(plan, ordinal);
  if (plan != NULL && of == NULL)
    return STPLAN_BAD_DEVICE;
  stplan_device *d = calloc(1, sizeof *d);
  if (d == NULL)
    return STPLAN_FAILED;
  if (of != NULL && of->advice == SP_ADVICE_POOL) {
    of = NULL;
    d->own.state = STPLAN_DECLINED;
  }
  d->counters = &d->own;
  d->own.fields = sizeof d->own / sizeof(uint64_t);
  if (of != NULL) {
    d->matcher = sp_matcher_new(of);
    if (d->matcher == NULL) {
      free(d);
      return STPLAN_FAILED;
    }
    d->plan = of;
    d->own.state = STPLAN_PROLOGUE;
  }
  d->prim = *prim;
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->growth, NULL);
  *device = d;
  return STPLAN_OK;
}

/* give_all gives back what there is in each extent, piece by piece. */
static void give_all(stplan_device *d) {
  uint64_t end = 0;
  for (const sp_range *r = d->arena.last; r != NULL; r = r->prev) {
    if (r->absent)
      continue;
    if (end == 0)
      end = r->addr + r->size;
    if (!r->first && !r->prev->absent)
      continue;
    d->prim.give_back(d->prim.self, r->addr, end - r->addr);
    end = 0;
  }
}

void stplan_close(stplan_device *d) {
  if (d == NULL)
    return;
  if (d->arena.last != NULL && d->prim.synchronize(d->prim.self) == 0)
    give_all(d);
  for (int i = 0; i < d->streams.count; i++)
    sp_stream_drop(&d->prim, d->streams.list[i]);
  d->prim.close(d->prim.self);
  while (d->chunks != NULL) {
    sp_chunk *c = d->chunks;
    d->chunks = c->next;
    free(c->nodes);
    free(c);
  }
  if (d->counters != &d->own)
    munmap(d->counters, sizeof *d->counters);
  sp_matcher_free(d->matcher);
  pthread_mutex_destroy(&d->lock);
  pthread_mutex_destroy(&d->growth);
  free(d);
}

int sp_device_stream(stplan_device *d, stplan_stream handle) {
  int found = sp_streams_find(&d->streams, handle);
  if (found >= 0 || d->streams.count == SP_STREAMS)
    return found;
  pthread_mutex_unlock(&d->lock);
  sp_stream *made = sp_stream_make(&d->prim, handle);
  pthread_mutex_lock(&d->lock);
  if (made == NULL)
    return -1;
  found = sp_streams_find(&d->streams, handle);
  if (found < 0 && d->streams.count < SP_STREAMS) {
    d->streams.list[d->streams.count] = made;
    return d->streams.count++;
  }
  pthread_mutex_unlock(&d->lock);
  sp_stream_drop(&d->prim, made);
  pthread_mutex_lock(&d->lock);
  return found;
}

int sp_device_nodes(stplan_device *d) {
  while (d->arena.pooled < SP_ARENA_NODES) {
    pthread_mutex_unlock(&d->lock);
    sp_chunk *chunk = malloc(sizeof *chunk);
    sp_range *nodes = chunk == NULL ? NULL : sp_arena_chunk(CHUNK_NODES);
    pthread_mutex_lock(&d->lock);
    if (nodes == NULL) {
      free(chunk);
      return 0;
    }
    chunk->nodes = nodes;
    chunk->next = d->chunks;
    d->chunks = chunk;
    sp_arena_pool(&d->arena, nodes, CHUNK_NODES);
  }
  return 1;
}

void sp_device_account(stplan_device *d, int64_t reserved) {
  stplan_counters *c = d->counters;
  c->reserved_bytes += (uint64_t)reserved;
  if (c->reserved_bytes > c->peak_reserved_bytes)
    c->peak_reserved_bytes = c->reserved_bytes;
  sp_tally_set(&d->usage.reserved, c->reserved_bytes);
}

void sp_device_plan_zone(stplan_device *d, sp_zone zone) {
  if (d->plan_base != 0)
    sp_arena_rezone(&d->arena, d->plan_base, d->plan_base + d->plan->arena_bytes, zone);
}

void sp_device_suspend(stplan_device *d, int suspended) {
  d->suspended = suspended;
  if (suspended)
    d->moved_debt = 0; /* the pool begins with what the plan leaves behind, and owes nothing */
  sp_device_plan_zone(d, suspended ? SP_ZONE_OPEN : SP_ZONE_PLAN);
}

void sp_device_give_up(stplan_device *d) {
  d->given_up = 1;
  sp_device_suspend(d, 1);
}

/* recorded is the most that the recording had allocated, or what the plan takes in
 * one piece. */
static uint64_t recorded(const stplan_device *d) {
  if (!d->prim.partial)
    return d->plan->arena_bytes;
  return d->plan->end == SP_END_REQUESTED ? d->plan->peak_allocated : d->plan->peak_active;
}

/* ALLOWANCE: a run has allocated as much as the recording had where it lacks no more
 * than such a share. */
enum { ALLOWANCE = 100 };

/* follows says whether the run has allocated as much as the recording had by the time
 * it was where the run is. If not, the plan is of a job that needs more memory. */
static int follows(const stplan_device *d) {
  uint64_t peak = d->counters->peak_allocated_bytes;
  return d->recorded_bytes <= peak + peak / ALLOWANCE;
}

int sp_device_over(const stplan_device *d, uint64_t taken, uint64_t more, sp_slack slack) {
  const stplan_counters *c = d->counters;
  int fitting = d->watched < SP_WATCH || d->placed_bytes >= d->wanted_bytes / 100 * SP_FITTING;
  int expected = follows(d) && (fitting || slack == SP_SLACK_ENDS);
  uint64_t most = expected || !d->prim.partial ? recorded(d) : 0;
  if (most < c->peak_allocated_bytes)
    most = c->peak_allocated_bytes;
  if (most < c->allocated_bytes + more)
    most = c->allocated_bytes + more;
  uint64_t share = slack == SP_SLACK_ENDS && fitting ? SP_SLACK_FITS : slack;
  return c->reserved_bytes + taken > most + most / share + SP_ZONES * d->prim.granularity;
}

void stplan_set_limit(stplan_device *d, uint64_t bytes) {
  pthread_mutex_lock(&d->lock);
  d->limit = bytes;
  pthread_mutex_unlock(&d->lock);
}

void stplan_read(stplan_device *d, stplan_counters *counters) {
  pthread_mutex_lock(&d->lock);
  *counters = *d->counters;
  pthread_mutex_unlock(&d->lock);
}

stplan_status stplan_share(stplan_device *d, const char *path) {
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0)
    return STPLAN_FAILED;
  void *shared = MAP_FAILED;
  /* With its space taken: a full disk must not end the process at a write. */
  if (posix_fallocate(file, 0, sizeof(stplan_counters)) == 0)
    shared = mmap(NULL, sizeof(stplan_counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED)
    return STPLAN_FAILED;
  pthread_mutex_lock(&d->lock);
  stplan_counters *old = d->counters;
  memcpy(shared, old, sizeof *old);
  d->counters = shared;
  pthread_mutex_unlock(&d->lock);
  if (old != &d->own)
    munmap(old, sizeof *old);
  return STPLAN_OK;
}
