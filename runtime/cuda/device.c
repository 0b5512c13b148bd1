#define _POSIX_C_SOURCE 200809L

#include "device.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Nodes that are made at once: 256 KiB of host memory. More waste memory in
 * small programs, fewer let go of the lock more often while a program begins. */
enum { CHUNK_NODES = 1024 };

void sp_device_lock_growth(stplan_device *d) {
  sp_device_unlock(d);
  pthread_mutex_lock(&d->growth);
  sp_device_lock(d);
}

void sp_device_unlock_growth(stplan_device *d) { pthread_mutex_unlock(&d->growth); }

int sp_device_stream(stplan_device *d, stplan_stream handle) {
  int found = sp_streams_find(&d->streams, handle);
  if (found >= 0 || d->streams.count == SP_STREAMS)
    return found;
  sp_device_unlock(d);
  sp_stream *made = sp_stream_make(&d->streams, &d->prim, handle);
  sp_device_lock(d);
  if (made == NULL)
    return -1;
  found = sp_streams_find(&d->streams, handle); /* another thread may have added it */
  if (found < 0 && d->streams.count < SP_STREAMS) {
    d->streams.list[d->streams.count] = made;
    return d->streams.count++;
  }
  sp_device_unlock(d);
  sp_stream_drop(&d->prim, made);
  sp_device_lock(d);
  return found;
}

int sp_device_nodes(stplan_device *d) {
  while (d->arena.pooled < SP_ARENA_NODES) {
    sp_device_unlock(d);
    sp_chunk *chunk = malloc(sizeof *chunk);
    sp_range *nodes = chunk == NULL ? NULL : sp_arena_chunk(CHUNK_NODES);
    sp_device_lock(d);
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

int sp_device_may_take(const stplan_device *d, uint64_t bytes) {
  uint64_t reserved = d->counters.reserved_bytes;
  uint64_t most = d->libraries.most != 0 && (d->limit == 0 || d->libraries.most < d->limit) ? d->libraries.most : d->limit;
  return most == 0 || (reserved <= most && bytes <= most - reserved);
}

uint64_t sp_device_left(stplan_device *d) {
  uint64_t bytes;
  sp_device_unlock(d);
  int failed = d->prim.room(d->prim.self, &bytes);
  sp_device_lock(d);
  return failed ? UINT64_MAX : bytes;
}

void stplan_set_limit(stplan_device *d, uint64_t bytes) {
  sp_device_lock(d);
  d->limit = bytes;
  sp_device_unlock(d);
}

/* left notes what the device has left, as far as is known, when reserved bytes have changed. */
static void left(sp_libraries *l, int64_t reserved) {
  if (l->left == UINT64_MAX)
    return; /* the device does not say */
  if (reserved < 0)
    l->left += (uint64_t)-reserved;
  else
    l->left -= sp_least(l->left, (uint64_t)reserved);
}

void sp_device_account(stplan_device *d, int64_t reserved) {
  SP_COUNT(d, reserved_bytes, (uint64_t)reserved);
  if (d->counters.reserved_bytes >= d->before)
    d->before = 0;
  if (d->counters.reserved_bytes > d->counters.peak_reserved_bytes)
    SP_SET(d, peak_reserved_bytes, d->counters.reserved_bytes);
  sp_tally_set(&d->usage.reserved, d->counters.reserved_bytes);
  left(&d->libraries, reserved);
}

void sp_device_forget_ends(stplan_device *d) {
  for (int zone = 0; zone < SP_ZONES; zone++)
    if (d->end[zone] != 0 && sp_arena_holding(&d->arena, d->end[zone] - 1) == NULL)
      d->end[zone] = 0;
}

void stplan_read(stplan_device *d, stplan_counters *counters) {
  sp_device_lock(d);
  *counters = d->counters;
  sp_device_unlock(d);
}

stplan_status stplan_share(stplan_device *d, const char *path) {
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0)
    return STPLAN_FAILED;
  void *shared = MAP_FAILED;
  /* Space is taken now: a write to a full disk would end the process later. */
  if (posix_fallocate(file, 0, sizeof(stplan_counters)) == 0)
    shared = mmap(NULL, sizeof(stplan_counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED)
    return STPLAN_FAILED;
  sp_device_lock(d);
  stplan_counters *old = d->shared;
  memcpy(shared, &d->counters, sizeof d->counters);
  d->shared = shared;
  sp_device_unlock(d);
  if (old != &d->counters)
    munmap(old, sizeof *old);
  return STPLAN_OK;
}

void stplan_watch(stplan_device *d, stplan_seen *seen, void *context) {
  pthread_mutex_lock(&d->growth);
  d->seen = seen;
  d->seen_context = context;
  pthread_mutex_unlock(&d->growth);
}

void sp_device_notify(const stplan_device *d, stplan_event event, uint64_t addr, uint64_t bytes) {
  if (d->seen != NULL)
    d->seen(d->seen_context, event, addr, bytes);
}
