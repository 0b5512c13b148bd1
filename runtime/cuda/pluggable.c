#define _POSIX_C_SOURCE 200809L

#include "pluggable.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

/* A pool serves one capture on one device. It has a device object of its own, on the
 * primitives of the device's, which are safe to share. Pools are never closed. */
typedef struct pool {
  struct pool *next;
  int ordinal;
  uint64_t capture;
  stplan_device *device;
} pool;

/* Bytes of an error message. */
enum { MESSAGE = 512 };

static _Atomic(pool *) pools;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* held to make pools, and to tell devices of them */
static stplan_pluggable_throw *throw = sp_throw;

/* Bit N: device N has been asked for. stplan_at would open a device that has not. */
static _Atomic(uint64_t) used;

/* Set in a forked child, if its parent has opened devices: the child cannot use them. */
static _Atomic(int) orphaned;

static void in_child(void) {
  if (atomic_load(&used) != 0)
    atomic_store(&orphaned, 1);
}

stplan_status stplan_pluggable_start(const stplan_settings *settings, char *error, size_t size) {
  if (!sp_throw_prepare(error, size))
    return STPLAN_FAILED;
  return stplan_pluggable_start_on(sp_cuda_open, sp_throw, settings, error, size);
}

stplan_status stplan_pluggable_start_on(stplan_opener *open, stplan_pluggable_throw *to_throw, const stplan_settings *settings, char *error, size_t size) {
  stplan_status status = stplan_start_on(open, settings, error, size);
  if (status != STPLAN_OK)
    return status;
  throw = to_throw;
  pthread_atfork(NULL, NULL, in_child);
  return STPLAN_OK;
}

/* in_use is the object of a device that has been asked for, or NULL. */
static stplan_device *in_use(int ordinal) {
  if (ordinal < 0 || ordinal >= STPLAN_DEVICES || !(atomic_load_explicit(&used, memory_order_relaxed) >> ordinal & 1))
    return NULL;
  return atomic_load_explicit(&orphaned, memory_order_relaxed) ? NULL : stplan_at(ordinal);
}

/* device_of is a device's object, opened if need be, or NULL. */
static stplan_device *device_of(int ordinal) {
  stplan_device *d = in_use(ordinal);
  if (d != NULL || atomic_load_explicit(&orphaned, memory_order_relaxed))
    return d;
  d = stplan_at(ordinal);
  if (d != NULL)
    atomic_fetch_or(&used, UINT64_C(1) << ordinal);
  return d;
}

/* next_pool is the first pool of a device from p on, or NULL. */
static const pool *next_pool(const pool *p, int ordinal) {
  while (p != NULL && p->ordinal != ordinal)
    p = p->next;
  return p;
}

#define EACH_POOL(p, ordinal) \
  const pool *p = next_pool(atomic_load(&pools), ordinal); p != NULL; p = next_pool(p->next, ordinal)

static void keep(void *self) { (void)self; }

/* make_pool makes the pool of a capture. NULL without host memory. Called with
 * `making` held. */
static const pool *make_pool(const stplan_device *d, int ordinal, uint64_t capture) {
  pool *p = calloc(1, sizeof *p);
  sp_prim prim = d->prim;
  prim.close = keep;
  if (p == NULL || stplan_open(&prim, NULL, ordinal, &p->device) != STPLAN_OK) {
    free(p);
    return NULL;
  }
  stplan_keep(p->device); /* a graph replays into memory that is idle here */
  p->ordinal = ordinal;
  p->capture = capture;
  p->next = atomic_load(&pools);
  atomic_store(&pools, p);
  return p;
}

/* pool_of is the pool of a capture. NULL without host memory. */
static const pool *pool_of(const stplan_device *d, int ordinal, uint64_t capture) {
  pthread_mutex_lock(&making);
  const pool *found = NULL;
  for (EACH_POOL(p, ordinal))
    if (p->capture == capture)
      found = p;
  if (found == NULL)
    found = make_pool(d, ordinal, capture);
  pthread_mutex_unlock(&making);
  return found;
}

static void sum(stplan_stat *to, const stplan_stat *of) {
  to->current += of->current;
  to->added += of->added;
  to->removed += of->removed;
}

static void sum_usage(stplan_usage *to, const stplan_usage *of) {
  sum(&to->blocks, &of->blocks);
  sum(&to->bytes, &of->bytes);
  sum(&to->requested, &of->requested);
}

/* add_pools adds what a device's captures hold to its statistics, except peaks. */
static void add_pools(int ordinal, stplan_statistics *statistics) {
  for (EACH_POOL(p, ordinal)) {
    stplan_statistics of;
    stplan_measure(p->device, &of);
    sum_usage(&statistics->all, &of.all);
    sum_usage(&statistics->small, &of.small);
    sum_usage(&statistics->large, &of.large);
    sum(&statistics->reserved, &of.reserved);
    sum(&statistics->extents, &of.extents);
    sum(&statistics->small_reserved, &of.small_reserved);
    sum(&statistics->small_extents, &of.small_extents);
  }
}

/* tell_of_pools tells a device what its captures hold, so that its peaks are of the sums. */
static void tell_of_pools(stplan_device *d, int ordinal) {
  stplan_statistics held = {0};
  pthread_mutex_lock(&making);
  add_pools(ordinal, &held);
  stplan_beside(d, &held);
  pthread_mutex_unlock(&making);
}

/* A size as torch's own messages write it. */
typedef struct {
  double number;
  const char *unit;
} amount;

static amount in_units(uint64_t bytes) {
  const uint64_t gib = 1 << 30, mib = 1 << 20;
  return bytes >= gib ? (amount){(double)bytes / (double)gib, "GiB"} : (amount){(double)bytes / (double)mib, "MiB"};
}

/* fail throws for a request that failed with a status. */
static void fail(stplan_device *d, int device, size_t size, stplan_status status) {
  char message[MESSAGE];
  if (status == STPLAN_BAD_STREAM) {
    snprintf(message, sizeof message, "stplan: more than %d streams use memory of cuda:%d, or one of another device; without the shim no more are served", SP_STREAMS, device);
    throw(SP_THROW_ERROR, message);
    return;
  }
  sp_device_lock(d);
  const amount wanted = in_units(size), reserved = in_units(d->counters.reserved_bytes);
  const amount allocated = in_units(d->counters.allocated_bytes), limit = in_units(d->limit);
  sp_device_unlock(d);
  int n = snprintf(message, sizeof message,
                   "CUDA out of memory. Tried to allocate %.2f %s. On GPU %d stplan has reserved %.2f %s, of which %.2f %s are allocated",
                   wanted.number, wanted.unit, device, reserved.number, reserved.unit, allocated.number, allocated.unit);
  if (limit.number > 0)
    snprintf(message + n, sizeof message - (size_t)n, "; its limit is %.2f %s", limit.number, limit.unit);
  throw(SP_THROW_OUT_OF_MEMORY, message);
}

void *stplan_pluggable_malloc(size_t size, int device, void *stream) {
  const stplan_stream handle = (uintptr_t)stream;
  if (size == 0)
    return NULL;
  stplan_device *d = device_of(device);
  if (d == NULL) {
    char message[MESSAGE];
    snprintf(message, sizeof message, "stplan: cuda:%d is not served", device);
    throw(SP_THROW_ERROR, message);
    return NULL;
  }
  stplan_status status = STPLAN_NO_MEMORY;
  uint64_t address = 0;
  const uint64_t capture = d->prim.capturing(d->prim.self, handle);
  if (capture == 0) {
    stplan_source source;
    address = stplan_malloc(d, size, handle, &source, &status);
    if (address != 0 && source != STPLAN_FROM_PLAN && stplan_planned(device))
      stplan_off_plan(device);
  } else {
    const pool *p = pool_of(d, device, capture);
    if (p != NULL)
      address = stplan_malloc(p->device, size, handle, NULL, &status);
    tell_of_pools(d, device);
  }
  if (address == 0)
    fail(d, device, size, status);
  return (void *)(uintptr_t)address;
}

void stplan_pluggable_free(void *ptr, size_t size, int device, void *stream) {
  const uint64_t address = (uintptr_t)ptr;
  stplan_device *d = in_use(device);
  (void)size;
  if (d == NULL || stplan_release(d, address, NULL) == STPLAN_OK)
    return;
  for (EACH_POOL(p, device))
    if (stplan_release(p->device, address, NULL) == STPLAN_OK) {
      tell_of_pools(d, device);
      return;
    }
  stplan_free(d, address, (uintptr_t)stream); /* which counts it as refused */
}

void stplan_pluggable_record_stream(void *ptr, void *stream) {
  const uint64_t address = (uintptr_t)ptr;
  for (int device = 0; device < STPLAN_DEVICES; device++) {
    stplan_device *d = in_use(device);
    if (d == NULL)
      continue;
    stplan_status status = stplan_record_stream(d, address, (uintptr_t)stream);
    for (EACH_POOL(p, device))
      if (status == STPLAN_BAD_POINTER)
        status = stplan_record_stream(p->device, address, (uintptr_t)stream);
    if (status == STPLAN_BAD_STREAM)
      fail(d, device, 0, status);
    if (status != STPLAN_BAD_POINTER)
      return;
  }
}

void stplan_pluggable_empty_cache(void) {
  for (int device = 0; device < STPLAN_DEVICES; device++) {
    stplan_device *d = in_use(device);
    if (d != NULL)
      stplan_empty_cache(d);
  }
}

static _Atomic(int) begun; /* calls of begin_pool that have not been undone */

void stplan_pluggable_begin_pool(int device, stplan_pool_id pool, void *filter) {
  (void)device, (void)pool, (void)filter;
  if (atomic_load(&orphaned))
    return;
  stplan_captures();
  stplan_hold(1);
  atomic_fetch_add(&begun, 1);
}

void stplan_pluggable_end_pool(int device, stplan_pool_id pool) {
  (void)device, (void)pool;
  int now = atomic_load(&begun);
  while (now > 0 && !atomic_compare_exchange_weak(&begun, &now, now - 1))
    ;
  if (now > 0 && !atomic_load(&orphaned))
    stplan_hold(0);
}

stplan_status stplan_pluggable_pin(uint64_t address, uint64_t size, int pin) {
  stplan_status (*change)(stplan_device *, uint64_t, uint64_t) = pin ? stplan_pin : stplan_unpin;
  stplan_status status = STPLAN_BAD_POINTER;
  for (int device = 0; device < STPLAN_DEVICES && status == STPLAN_BAD_POINTER; device++) {
    stplan_device *d = in_use(device);
    if (d == NULL)
      continue;
    status = change(d, address, size);
    for (EACH_POOL(p, device))
      if (status == STPLAN_BAD_POINTER)
        status = change(p->device, address, size);
  }
  return status;
}

/* An amount for every device, and what has become of it. */
typedef stplan_status each_function(stplan_device *d, uint64_t most, uint64_t *bytes);

static stplan_status pause_one(stplan_device *d, uint64_t most, uint64_t *bytes) {
  (void)most;
  return stplan_pause(d, bytes);
}

/* each calls a function for one device or all, and adds up what it returns. */
static stplan_status each(each_function *call, int device, uint64_t most, uint64_t *bytes) {
  stplan_status status = STPLAN_OK;
  *bytes = 0;
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = device < 0 || device == i ? in_use(i) : NULL;
    uint64_t one = 0;
    stplan_status now = d == NULL ? STPLAN_OK : call(d, most, &one);
    status = status == STPLAN_OK ? now : status;
    *bytes += one;
  }
  return status;
}

stplan_status stplan_pluggable_pause(int device, uint64_t *given) {
  if (atomic_load(&begun) == 0)
    return each(pause_one, device, 0, given);
  *given = 0;
  return STPLAN_HELD;
}

stplan_status stplan_pluggable_resume(int device, uint64_t most, uint64_t *taken) {
  return each(stplan_resume, device, most, taken);
}

int stplan_pluggable_survey(int device, stplan_memory *memory, uint64_t *captured) {
  stplan_device *d = in_use(device);
  stplan_statistics of = {0};
  if (d == NULL)
    return 0;
  stplan_survey(d, memory);
  add_pools(device, &of);
  *captured = of.reserved.current;
  return 1;
}

void stplan_pluggable_mark(void) {
  for (int device = 0; device < STPLAN_DEVICES; device++) {
    stplan_device *d = in_use(device);
    if (d != NULL)
      stplan_mark(d);
  }
}

uint64_t stplan_pluggable_exchange_begins(int device) {
  return atomic_load(&orphaned) ? 0 : stplan_exchange_begins_at(device);
}

void stplan_pluggable_exchange_enqueued(int device, uint64_t exchange) {
  if (!atomic_load(&orphaned))
    stplan_exchange_enqueued_at(device, exchange);
}

void stplan_pluggable_exchange_awaited(int device, uint64_t exchange, stplan_stream stream) {
  if (!atomic_load(&orphaned))
    stplan_exchange_awaited_at(device, exchange, stream);
}

void stplan_pluggable_limit(int device, uint64_t bytes) {
  stplan_device *d = device_of(device);
  if (d != NULL)
    stplan_set_limit(d, bytes);
}

int stplan_pluggable_read(int device, stplan_statistics *statistics, stplan_counters *counters) {
  stplan_device *d = in_use(device);
  if (d == NULL)
    return 0;
  stplan_measure(d, statistics);
  add_pools(device, statistics);
  stplan_read(d, counters);
  for (EACH_POOL(p, device)) {
    stplan_counters of;
    stplan_read(p->device, &of);
    counters->failed_allocations += of.failed_allocations;
    counters->growths += of.growths;
  }
  return 1;
}

void stplan_pluggable_reset_peaks(int device) {
  stplan_device *d = in_use(device);
  if (d != NULL)
    stplan_reset_peaks(d);
}

void stplan_pluggable_reset_sums(int device) {
  stplan_device *d = in_use(device);
  if (d == NULL)
    return;
  stplan_reset_sums(d);
  for (EACH_POOL(p, device))
    stplan_reset_sums(p->device);
}

size_t stplan_pluggable_ranges(int device, stplan_range *ranges, size_t room) {
  stplan_device *d = in_use(device);
  if (d == NULL)
    return 0;
  size_t count = stplan_ranges(d, ranges, room);
  for (EACH_POOL(p, device)) {
    size_t written = count < room ? count : room;
    count += stplan_ranges(p->device, ranges + written, room - written);
  }
  return count;
}
