/* ordered.c: many threads on many streams of two devices, which share blocks between
 * streams, free each other's, read late what they free, exchange with other processes,
 * capture, change limits, trim, and have calls of the device fail. The new owner of memory has to be
 * ordered behind all former uses, on the device; memory that is given back to the device
 * must not be in use.
 *
 *   ordered OPERATIONS FAILURES EVENTS [PLAN.bin]: each thread does OPERATIONS operations,
 *   on new devices now and then, as a plan is soon given up here. One call of the device in
 *   FAILURES fails; 0: none. EVENTS is "whole" if the device has events of all its streams,
 *   "known" if it has not. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "conformance.h"
#include "model.h"

enum { ROUND = 500, THREADS = 6, DEVICES = 2, LIVE = 40, MIB = 1 << 20, RANGES = 4096 };

/* The last streams are captured now and then, all others never. */
enum { CAPTURED = 3, FIRST_CAPTURED = MODEL_STREAMS - CAPTURED };

#define CAPACITY (UINT64_C(128) * MIB)

static struct {
  stplan_device *device;
  model *model;
  atomic_ulong failed, foreign;
  pthread_rwlock_t begins[CAPTURED]; /* held for reading during a request on the stream, for writing during a capture */
  pthread_mutex_t exchange;          /* held for the exchange's next step; protects what is below */
  enum { NONE, ANNOUNCED, ENQUEUED, TOLD } step;
  uint64_t number; /* of the exchange, as the runtime has told */
} on[DEVICES];

static long operations; /* of each thread */
static int known_only; /* the device has no events of all its streams */
static int planned, may_fail; /* there is a plan; calls of the device may fail */

typedef struct {
  uint64_t address, size, streams;
  int device, own;
} block;

static uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (*seed >> 33) % below;
}

/* The sizes of the plan of safety_test.go, in its order. */
static const uint64_t cycle[] = {4096, 65536, MIB, 303104, 4096, 2 * MIB, 8192, 131072};

static uint64_t next_size(uint64_t *seed, size_t *at) {
  if (draw(seed, 400) == 0)
    return 20 * MIB + draw(seed, 2048) * MODEL_UNIT;
  if (planned && draw(seed, 16) > 0)
    return cycle[(*at)++ % (sizeof cycle / sizeof *cycle)];
  uint64_t units = UINT64_C(1) << draw(seed, 9);
  return (units + draw(seed, units)) * MODEL_UNIT;
}

/* request asks for a block, unless its stream is being captured, and says
 * whether it got one. */
static int request(block *b, uint64_t size) {
  pthread_rwlock_t *begins = b->own < FIRST_CAPTURED ? NULL : &on[b->device].begins[b->own - FIRST_CAPTURED];
  if (begins != NULL && pthread_rwlock_tryrdlock(begins) != 0)
    return 0;
  stplan_status status;
  b->size = size;
  b->streams = UINT64_C(1) << b->own;
  b->address = stplan_malloc(on[b->device].device, size, model_handle(b->own), NULL, &status);
  if (b->address != 0)
    model_begin(on[b->device].model, b->own, b->address, size);
  else
    atomic_fetch_add(&on[b->device].failed, 1);
  if (begins != NULL)
    pthread_rwlock_unlock(begins);
  DEMAND(b->address != 0 || status == STPLAN_NO_MEMORY || (may_fail && status == STPLAN_BAD_STREAM));
  return b->address != 0;
}

/* share has another stream use a block, if the runtime can note that. */
static void share(block *b, int stream) {
  model_follow(on[b->device].model, stream, b->own);
  stplan_status status = stplan_record_stream(on[b->device].device, b->address, model_handle(stream));
  DEMAND(status == STPLAN_OK || (may_fail && status == STPLAN_BAD_STREAM));
  if (status != STPLAN_OK)
    return;
  model_meet(on[b->device].model, stream);
  b->streams |= UINT64_C(1) << stream;
}

/* drop frees a block, after streams that the runtime may not know have been given
 * something that reads it. */
static void drop(const block *b, uint64_t *seed) {
  stplan_range was;
  for (uint64_t late = draw(seed, 3); late > 0; late--)
    model_work(on[b->device].model, (int)draw(seed, MODEL_ALL));
  model_end(on[b->device].model, b->streams, b->address, b->size);
  DEMAND(stplan_release(on[b->device].device, b->address, &was) == STPLAN_OK && was.size == b->size);
}

/* A block that some thread has left for another one to free; none if its size is 0. */
static struct {
  pthread_mutex_t lock;
  block left;
} between = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* swap leaves a block and takes the one that was left, as a program does that frees on another
 * thread, such as autograd's. 0 if there was none. */
static int swap(block *b) {
  pthread_mutex_lock(&between.lock);
  block taken = between.left;
  between.left = *b;
  *b = taken;
  pthread_mutex_unlock(&between.lock);
  return taken.size > 0;
}

/* capture begins a capture of a stream and ends it, with time for other threads in between. */
static void capture(int device, int stream) {
  pthread_rwlock_t *begins = &on[device].begins[stream - FIRST_CAPTURED];
  if (pthread_rwlock_trywrlock(begins) != 0)
    return;
  stplan_hold(1);
  model_hold(on[device].model, 1);
  model_capture(on[device].model, stream, 1);
  stplan_counters c;
  for (int i = 0; i < 40; i++)
    stplan_read(on[device].device, &c);
  model_capture(on[device].model, stream, 0);
  model_hold(on[device].model, 0);
  stplan_hold(0);
  pthread_rwlock_unlock(begins);
}

/* exchange takes the next step of an exchange with another process: it is announced, enqueued
 * or not, told to have been, and over, which it may be before that is told. Other threads
 * do anything in between. */
static void exchange(int device, uint64_t *seed) {
  pthread_mutex_lock(&on[device].exchange);
  int enqueued = on[device].step == ENQUEUED, over = draw(seed, 3) == 0;
  switch (on[device].step) {
  case NONE:
    on[device].number = stplan_exchange_begins(on[device].device);
    on[device].step = ANNOUNCED;
    break;
  case ANNOUNCED:
    if (draw(seed, 4) > 0) {
      model_exchange(on[device].model, 1);
      on[device].step = ENQUEUED;
      break;
    }
    stplan_exchange_enqueued(on[device].device, on[device].number);
    on[device].step = NONE;
    break;
  case ENQUEUED: case TOLD:
    if (!enqueued || over)
      model_exchange(on[device].model, 0);
    if (enqueued)
      stplan_exchange_enqueued(on[device].device, on[device].number);
    on[device].step = enqueued && !over ? TOLD : NONE;
    break;
  }
  pthread_mutex_unlock(&on[device].exchange);
}

/* announce tells of an exchange that is not enqueued, beside the one that may be under way. */
static void announce(int device) {
  stplan_counters c;
  uint64_t number = stplan_exchange_begins(on[device].device);
  for (int i = 0; i < 10; i++)
    stplan_read(on[device].device, &c);
  stplan_exchange_enqueued(on[device].device, number);
}

/* await has a stream wait for the exchange, if there is one, and says so. Without events of
 * the whole device the runtime does not follow exchanges. */
static void await(int device, int stream) {
  if (known_only)
    return;
  pthread_mutex_lock(&on[device].exchange);
  if (on[device].step == ENQUEUED || on[device].step == TOLD) {
    model_follow(on[device].model, stream, MODEL_LINK);
    stplan_exchange_awaited(on[device].device, on[device].number, model_handle(stream));
  }
  pthread_mutex_unlock(&on[device].exchange);
}

/* besides does something that a program does now and then. */
static void besides(uint64_t *seed, int device) {
  stplan_device *d = on[device].device;
  static _Thread_local stplan_range ranges[RANGES];
  stplan_statistics statistics;
  switch (draw(seed, 400)) {
  case 0: stplan_empty_cache(d); break;
  case 1: stplan_set_limit(d, draw(seed, 3) == 0 ? 0 : CAPACITY / 8 + draw(seed, CAPACITY / 2)); break;
  case 2: stplan_mark(d); break;
  case 3: stplan_ranges(d, ranges, RANGES); break;
  case 4: stplan_measure(d, &statistics); break;
  case 5: stplan_reset_peaks(d); break;
  case 6:
    DEMAND(stplan_free(d, 12345, model_handle(0)) == STPLAN_BAD_POINTER);
    atomic_fetch_add(&on[device].foreign, 1);
    break;
  case 7: case 8: case 9: capture(device, FIRST_CAPTURED + (int)draw(seed, CAPTURED)); break;
  case 10: case 11: case 12: case 13: case 20: case 21: case 22: case 23: exchange(device, seed); break;
  case 14: case 15: case 16: case 17: await(device, (int)draw(seed, FIRST_CAPTURED)); break;
  case 18: stplan_resume(d, draw(seed, CAPACITY), &(uint64_t){0}); break;
  case 19: stplan_survey(d, &(stplan_memory){0}); break;
  case 24: announce(device); break;
  }
}

static void *work(void *number) {
  uint64_t seed = 1 + (uint64_t)(uintptr_t)number;
  block live[LIVE];
  int count = 0;
  size_t at = 0;
  for (int i = 0; i < ROUND; i++) {
    int device = (int)draw(&seed, DEVICES);
    besides(&seed, device);
    if (count == LIVE || (count > 0 && draw(&seed, 2) == 0)) {
      int k = (int)draw(&seed, (uint64_t)count);
      for (uint64_t n = draw(&seed, 8); n < 3; n++)
        share(&live[k], (int)draw(&seed, MODEL_STREAMS));
      if (draw(&seed, 4) > 0 || swap(&live[k]))
        drop(&live[k], &seed);
      live[k] = live[--count];
    } else {
      int follows = planned && draw(&seed, 4) > 0; /* all of the plan is on one stream */
      live[count] = (block){.device = device, .own = follows ? 0 : (int)draw(&seed, MODEL_STREAMS)};
      count += request(&live[count], next_size(&seed, &at));
    }
  }
  while (count > 0)
    drop(&live[--count], &seed);
  return NULL;
}

static stplan_plan *plan;
static uint64_t failures, allocations, on_plan, waits, moved;
static long carried; /* how often memory moved without being waited for */

/* open_devices opens them at other addresses in each round, since these decide which of the first calls fail. */
static void open_devices(long round) {
  for (int i = 0; i < DEVICES; i++) {
    const model_options options = {.base = (UINT64_C(1) << (40 + i)) + (uint64_t)round * 2 * MIB, .capacity = CAPACITY, .granularity = 2 * MIB, .failures = failures, .known_only = known_only};
    sp_prim prim;
    on[i].model = model_open(&options, &prim);
    DEMAND(stplan_open(&prim, i == 0 ? plan : NULL, 0, &on[i].device) == STPLAN_OK);
    atomic_store(&on[i].failed, 0);
    atomic_store(&on[i].foreign, 0);
    on[i].step = NONE;
  }
}

static void close_devices(void) {
  for (int i = 0; i < DEVICES; i++) {
    stplan_counters c;
    stplan_read(on[i].device, &c);
    DEMAND(c.allocated_bytes == 0 && c.allocations == c.frees && c.refused_frees == on[i].foreign);
    DEMAND(c.failed_allocations == on[i].failed);
    allocations += c.allocations;
    on_plan += c.planned_allocations;
    waits += c.waits;
    moved += c.moved_bytes;
    carried += model_carried(on[i].model);
    stplan_close(on[i].device);
    model_close(on[i].model);
  }
}

/* begin makes the plan's first requests, in its order. */
static void begin(void) {
  block live[sizeof cycle / sizeof *cycle];
  uint64_t seed = 1;
  int count = 0;
  for (size_t i = 0; i < sizeof cycle / sizeof *cycle; i++) {
    live[count] = (block){0};
    count += request(&live[count], cycle[i]);
  }
  while (count > 0)
    drop(&live[--count], &seed);
}

int main(int argc, char **argv) {
  char error[256];
  DEMAND(argc > 3 && (operations = atol(argv[1])) > 0);
  failures = (uint64_t)atol(argv[2]);
  may_fail = failures > 0;
  known_only = strcmp(argv[3], "known") == 0;
  planned = argc > 4;
  DEMAND(!planned || stplan_plan_open(argv[4], &plan, error, sizeof error) == STPLAN_OK);
  for (int i = 0; i < DEVICES; i++)
    pthread_mutex_init(&on[i].exchange, NULL);
  for (int i = 0; i < DEVICES; i++)
    for (int k = 0; k < CAPTURED; k++)
      pthread_rwlock_init(&on[i].begins[k], NULL);
  for (long round = 0; round * ROUND < operations; round++) {
    pthread_t threads[THREADS];
    open_devices(round);
    if (planned)
      begin();
    for (uintptr_t i = 0; i < THREADS; i++)
      DEMAND(pthread_create(&threads[i], NULL, work, (void *)((uintptr_t)round * THREADS + i)) == 0);
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
    block none = {0};
    if (swap(&none))
      drop(&none, &(uint64_t){1});
    close_devices();
  }
  printf("%llu allocations, %llu on plan, %llu waits, %llu B moved, %ld times carried\n", (unsigned long long)allocations,
         (unsigned long long)on_plan, (unsigned long long)waits, (unsigned long long)moved, carried);
  /* A round has few requests on plan but the first ones, as the plan is soon given up. */
  DEMAND(waits > 0 && (plan == NULL || on_plan > 0));
  stplan_plan_close(plan);
  return 0;
}
