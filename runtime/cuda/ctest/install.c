/* install.c: plans that are put in place while a run goes on: one thread is the program, which
 * repeats an iteration; others ask for memory now and then, keep plans coming, and hold memory
 * as captures do. Every 512 bytes have a flag, so that two owners at once are found.
 *
 *   install PASSES PLAN.bin */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "../prim_host.h"

#include "conformance.h"

enum { NOISY = 2, STREAMS = 3, LIVE = 8, UNIT = 512, CYCLES = 16, KEPT = 6 };

#define BASE (UINT64_C(1) << 40)
#define CAPACITY (UINT64_C(1) << 30)
#define SPAN (SP_HOST_ADDRESSES * CAPACITY)

/* The sizes of the plan, as fixture_test.go has them. */
static const uint64_t cycle[] = {4096, 65536, 1 << 20, 300000, 4096, 2 << 20, 512, 131072};

typedef struct {
  uint64_t address, size;
} block;

static _Atomic unsigned char *owned;
static stplan_device *device;
static stplan_plan *plan;
static atomic_int over;

static void own(block b, unsigned char from, unsigned char to) {
  DEMAND(b.address >= BASE && b.address + b.size <= BASE + SPAN);
  for (uint64_t u = (b.address - BASE) / UNIT; u < (b.address - BASE + b.size + UNIT - 1) / UNIT; u++)
    DEMAND(atomic_exchange_explicit(&owned[u], to, memory_order_relaxed) == from);
}

static block take(uint64_t size, uint64_t stream) {
  block b = {stplan_malloc(device, size, stream, NULL, NULL), size};
  DEMAND(b.address != 0);
  own(b, 0, 1);
  return b;
}

static void give(block b, uint64_t stream) {
  own(b, 1, 0);
  DEMAND(stplan_free(device, b.address, stream) == STPLAN_OK);
}

/* noise asks for memory of its own now and then, which the plan does not know. */
static void *noise(void *number) {
  uint64_t seed = 1 + (uint64_t)(uintptr_t)number;
  block live[LIVE] = {{0}};
  for (int i = 0; !atomic_load(&over); i = (i + 1) % LIVE) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    if (live[i].address != 0)
      give(live[i], (seed >> 40) % STREAMS);
    live[i] = take(UINT64_C(700) + (seed >> 33) % (3 << 20), (seed >> 50) % STREAMS);
    for (int k = 0; k < 400 && !atomic_load(&over); k++)
      sched_yield();
  }
  for (int i = 0; i < LIVE; i++)
    if (live[i].address != 0)
      give(live[i], 0);
  return NULL;
}

/* planner has the plan come again once it has been put in place, or twice before that, and
 * holds memory now and then. */
static void *planner(void *unused) {
  (void)unused;
  stplan_counters c = {0};
  for (uint64_t i = 0; !atomic_load(&over); i++) {
    DEMAND(stplan_install(device, plan, 0) == STPLAN_OK);
    for (uint64_t before = c.installs; i % 3 != 0 && c.installs == before && !atomic_load(&over); stplan_read(device, &c)) {
      stplan_hold(1);
      sched_yield();
      stplan_hold(0);
      sched_yield();
    }
  }
  DEMAND(stplan_install(device, plan, 7) == STPLAN_BAD_DEVICE);
  return NULL;
}

/* iterate is one iteration of the program. Each block lives until the next request. */
static void iterate(void) {
  for (size_t i = 0; i < CYCLES * sizeof cycle / sizeof *cycle; i++)
    give(take(cycle[i % (sizeof cycle / sizeof *cycle)], 0), 0);
}

/* Bytes. With granules as small as this the plans that are put in place have memory in larger
 * ones, as plans of real jobs have (device_plan.c). */
enum { FINE = 4 << 10 };

static int (*host_extend)(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr);
static uint64_t largest; /* granules, in bytes */

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  largest = at == 0 && unit > largest ? unit : largest; /* one thread at a time grows */
  return host_extend(self, at, bytes, room, unit, addr);
}

int main(int argc, char **argv) {
  char error[256];
  pthread_t threads[NOISY + 1];
  block kept[KEPT];
  stplan_counters c;
  DEMAND(argc == 3 && stplan_plan_open(argv[2], &plan, error, sizeof error) == STPLAN_OK);
  owned = calloc(SPAN / UNIT, 1);
  sp_host_options options = {.base = BASE, .capacity = CAPACITY, .granularity = FINE, .partial = 1};
  sp_prim prim;
  DEMAND(owned != NULL && sp_host_open(&options, &prim));
  host_extend = prim.extend;
  prim.extend = extend;
  DEMAND(stplan_open(&prim, NULL, 0, &device) == STPLAN_OK);
  for (int i = 0; i < KEPT; i++)
    kept[i] = take((uint64_t)(i + 1) << 19, 0);
  for (uintptr_t i = 0; i < NOISY; i++)
    DEMAND(pthread_create(&threads[i], NULL, noise, (void *)i) == 0);
  DEMAND(pthread_create(&threads[NOISY], NULL, planner, NULL) == 0);
  for (long i = atol(argv[1]); i > 0; i--)
    iterate();
  do { /* until a plan has replaced another, which a loaded machine may delay */
    iterate();
    stplan_read(device, &c);
  } while (c.installs < 2);
  atomic_store(&over, 1);
  for (int i = 0; i <= NOISY; i++)
    pthread_join(threads[i], NULL);
  iterate();
  for (int i = 0; i < KEPT; i++)
    give(kept[i], 0);
  stplan_read(device, &c);
  DEMAND(c.allocated_bytes == 0 && c.allocations == c.frees && c.refused_frees == 0 && c.failed_allocations == 0);
  DEMAND(c.planned_allocations > 0 && largest > FINE);
  printf("%llu allocations, %llu on plan, %llu plans put in place, %llu B moved\n", (unsigned long long)c.allocations,
         (unsigned long long)c.planned_allocations, (unsigned long long)c.installs, (unsigned long long)c.moved_bytes);
  stplan_close(device);
  stplan_plan_close(plan);
  free(owned);
  return 0;
}
