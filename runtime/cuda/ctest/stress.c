/* stress.c: many threads and streams, with a plan and without. Every 512 bytes
 * of the address space have a flag. It is set when they are allocated and
 * cleared when they are freed, so two owners at once are found by either.
 *
 *   stress OPERATIONS [PLAN.bin] */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../prim_host.h"

#include "conformance.h"

enum { THREADS = 8, STREAMS = 5, LIVE = 64, UNIT = 512, LARGE = 40 << 20, LISTED = 1 << 16 };

#define BASE (UINT64_C(1) << 40)
#define CAPACITY (UINT64_C(1) << 30)
#define LIMIT (CAPACITY / 4)

#define SPAN (SP_HOST_ADDRESSES * CAPACITY)

static _Atomic unsigned char *owned;
static long operations;
static stplan_device *device;
static const uint64_t *sizes;
static size_t size_count;
static atomic_ulong failed;

static void own(uint64_t p, uint64_t size, unsigned char from, unsigned char to) {
  DEMAND(p >= BASE && p + size <= BASE + SPAN);
  for (uint64_t u = (p - BASE) / UNIT; u < (p - BASE + size + UNIT - 1) / UNIT; u++)
    DEMAND(atomic_exchange_explicit(&owned[u], to, memory_order_relaxed) == from);
}

static uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (*seed >> 33) % below;
}

/* next_size is mostly one of the plan's, in its order, and rarely large enough
 * that idle memory has to move for it. */
static uint64_t next_size(uint64_t *seed, size_t *at) {
  if (draw(seed, 512) == 0)
    return LARGE + draw(seed, LARGE);
  if (size_count > 0 && draw(seed, 16) > 0)
    return sizes[(*at)++ % size_count];
  uint64_t size = UINT64_C(1) << draw(seed, 20);
  return size + draw(seed, size);
}

static void *work(void *number) {
  uint64_t seed = 1 + (uint64_t)(uintptr_t)number;
  struct {
    uint64_t address, size;
  } live[LIVE];
  int count = 0;
  size_t at = 0;
  for (long i = 0; i < operations; i++) {
    uint64_t stream = draw(&seed, STREAMS);
    if (count == LIVE || (count > 0 && draw(&seed, 2) == 0)) {
      int k = (int)draw(&seed, (uint64_t)count);
      if (draw(&seed, 8) == 0)
        DEMAND(stplan_record_stream(device, live[k].address, draw(&seed, STREAMS)) == STPLAN_OK);
      own(live[k].address, live[k].size, 1, 0);
      DEMAND(stplan_free(device, live[k].address, stream) == STPLAN_OK);
      live[k] = live[--count];
    } else {
      uint64_t size = next_size(&seed, &at), p = stplan_malloc(device, size, stream, NULL, NULL);
      if (p == 0) {
        atomic_fetch_add(&failed, 1);
      } else {
        own(p, size, 0, 1);
        live[count].address = p;
        live[count++].size = size;
      }
    }
    if (draw(&seed, 4096) == 0)
      stplan_empty_cache(device);
    if (draw(&seed, 2048) == 0)
      stplan_resume(device, draw(&seed, LIMIT), &(uint64_t){0});
    if (draw(&seed, 512) == 0)
      stplan_mark(device);
  }
  while (count > 0) {
    count--;
    own(live[count].address, live[count].size, 1, 0);
    DEMAND(stplan_free(device, live[count].address, 0) == STPLAN_OK);
  }
  return NULL;
}

static stplan_plan *open_plan(const char *path) {
  stplan_plan *plan;
  char error[256];
  if (stplan_plan_open(path, &plan, error, sizeof error) != STPLAN_OK) {
    fprintf(stderr, "%s: %s\n", path, error);
    exit(1);
  }
  return plan;
}

/* ranges_are_sound demands that all memory is listed once, and that its bytes
 * are those that are counted. */
static void ranges_are_sound(const stplan_counters *c) {
  stplan_range *list = calloc(LISTED, sizeof *list);
  size_t count = stplan_ranges(device, list, LISTED);
  uint64_t bytes = 0, end = 0;
  DEMAND(list != NULL && count <= LISTED);
  for (size_t i = 0; i < count; i++) {
    DEMAND(list[i].address >= end && list[i].size > 0 && !list[i].live);
    end = list[i].address + list[i].size;
    bytes += list[i].size;
  }
  DEMAND(bytes == c->reserved_bytes);
  free(list);
}

int main(int argc, char **argv) {
  DEMAND(argc > 1 && (operations = atol(argv[1])) > 0);
  stplan_plan *plan = argc > 2 ? open_plan(argv[2]) : NULL;
  /* The sizes of the plan of fixture_test.go, by which the threads follow it. */
  static const uint64_t planned[] = {4096, 65536, 1 << 20, 300000, 4096, 2 << 20, 512, 131072};
  sizes = planned;
  size_count = plan == NULL ? 0 : sizeof planned / sizeof *planned;
  owned = calloc(SPAN / UNIT, 1);
  sp_host_options options = {.base = BASE, .capacity = CAPACITY, .granularity = 2 << 20, .partial = 1};
  sp_prim prim;
  DEMAND(owned != NULL && sp_host_open(&options, &prim));
  DEMAND(stplan_open(&prim, plan, 0, &device) == STPLAN_OK);
  stplan_set_limit(device, LIMIT);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    DEMAND(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  stplan_counters c;
  stplan_read(device, &c);
  DEMAND(c.allocated_bytes == 0 && c.allocations == c.frees && c.refused_frees == 0);
  DEMAND(c.failed_allocations == failed && c.peak_reserved_bytes >= c.peak_allocated_bytes && c.peak_reserved_bytes <= LIMIT);
  DEMAND(plan == NULL || c.planned_allocations > 0);
  ranges_are_sound(&c);
  printf("%llu allocations, %llu on plan, %llu waits, %llu B moved\n", (unsigned long long)c.allocations,
         (unsigned long long)c.planned_allocations, (unsigned long long)c.waits, (unsigned long long)c.moved_bytes);
  stplan_close(device);
  stplan_plan_close(plan);
  free(owned);
  return 0;
}
