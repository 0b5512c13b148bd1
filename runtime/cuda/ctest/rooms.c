/* rooms.c: a pool that is large grows in large granules, on a simulated device whose granules
 * are counted. */
#include <pthread.h>
#include <stdatomic.h>

#include "../prim_host.h"
#include "../sizes.h"

#include "conformance.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BASE (UINT64_C(1) << 40)

enum { LIVE = 1000 };

/* A device, how much was mapped of it, and what is live. */
typedef struct {
  sp_prim host;
  stplan_device *device;
  uint64_t granules, rooms; /* mapped, and begun */
  uint64_t largest;         /* the largest unit of a room */
  uint64_t most_unit;       /* rooms of larger units are refused; 0: none is */
  uint64_t seed;
  struct {
    uint64_t at, unit;
  } starts[64]; /* of rooms */
  struct {
    uint64_t address, size;
  } live[LIVE];
  int count;
} world;

static uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (*seed >> 33) % below;
}

/* unit_at is the unit of the room that starts last before an address. */
static uint64_t unit_at(const world *w, uint64_t address) {
  uint64_t start = 0, unit = 0;
  for (uint64_t i = 0; i < w->rooms; i++)
    if (w->starts[i].at <= address && w->starts[i].at >= start) {
      start = w->starts[i].at;
      unit = w->starts[i].unit;
    }
  return unit;
}

static world *at_work; /* the device of a test: its primitives are the host's but for extend */

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  world *w = at_work;
  if ((at == 0 && w->most_unit != 0 && unit > w->most_unit) || w->host.extend(self, at, bytes, room, unit, addr) != 0)
    return 1;
  if (at == 0) {
    DEMAND(w->rooms < 64 && room >= bytes);
    w->starts[w->rooms].at = *addr;
    w->starts[w->rooms++].unit = unit;
    w->largest = unit > w->largest ? unit : w->largest;
  }
  w->granules += bytes / unit_at(w, *addr);
  return 0;
}

/* fresh is a device without a plan, of granules of 2 MiB. Its rooms have `span` bytes; 0: as many as
 * they have. */
static world *fresh(uint64_t capacity, uint64_t span) {
  const sp_host_options options = {.base = BASE, .capacity = capacity, .granularity = 2 * MIB, .partial = 1};
  world *w = calloc(1, sizeof *w);
  DEMAND(w != NULL && sp_host_open(&options, &w->host));
  sp_prim prim = w->host;
  prim.extend = extend;
  prim.span = span == 0 ? prim.span : span;
  at_work = w;
  DEMAND(stplan_open(&prim, NULL, 0, &w->device) == STPLAN_OK);
  return w;
}

static void drop(world *w) {
  stplan_close(w->device);
  free(w);
}

static stplan_counters counters(const world *w) {
  stplan_counters c;
  stplan_read(w->device, &c);
  return c;
}

static uint64_t get(world *w, uint64_t size) {
  uint64_t p = stplan_malloc(w->device, size, 0, NULL, NULL);
  DEMAND(p != 0 && w->count < LIVE);
  for (int i = 0; i < w->count; i++)
    DEMAND(p + size <= w->live[i].address || w->live[i].address + w->live[i].size <= p);
  w->live[w->count].address = p;
  w->live[w->count++].size = size;
  return p;
}

static void lose(world *w, int i) {
  DEMAND(stplan_free(w->device, w->live[i].address, 0) == STPLAN_OK);
  w->live[i] = w->live[--w->count];
}

static uint64_t allocated(const world *w) { return counters(w).allocated_bytes; }

/* churn frees and asks for blocks of 1 to 160 MiB, up to `most` bytes of them. */
static void churn(world *w, int times, uint64_t most) {
  while (times-- > 0) {
    uint64_t size = draw(&w->seed, 4) == 0 ? MIB + draw(&w->seed, 7 * MIB) : 40 * MIB + draw(&w->seed, 120 * MIB);
    while (w->count > 0 && (w->count == LIVE || allocated(w) + size > most))
      lose(w, (int)draw(&w->seed, (uint64_t)w->count));
    get(w, size);
  }
}

/* run_large drives a large pool with granules of at most `most_unit` bytes, and returns how many are
 * mapped. *reserved is the most that it reserves, beyond what it had before it was large. Before a
 * pool has 16 GiB its granules are the least. */
static uint64_t run_large(uint64_t most_unit, uint64_t *reserved) {
  world *w = fresh(256 * GIB, 0);
  w->most_unit = most_unit;
  churn(w, 1000, 12 * GIB);
  DEMAND(w->largest == 2 * MIB);
  uint64_t before = w->granules;
  churn(w, 2000, 40 * GIB);
  stplan_counters c = counters(w);
  uint64_t granules = w->granules - before;
  *reserved = c.peak_reserved_bytes;
  printf("granules of up to %llu MiB: %llu, %.1f GiB moved, reserved %.4f of what was allocated\n", (unsigned long long)(w->largest / MIB),
         (unsigned long long)granules, (double)c.moved_bytes / (double)GIB, (double)c.peak_reserved_bytes / (double)c.peak_allocated_bytes);
  DEMAND(c.failed_allocations == 0 && w->largest == most_unit && c.peak_allocated_bytes > 39 * GIB);
  drop(w);
  return granules;
}

/* A large pool maps large granules, half as many as with small ones, and reserves hardly
 * more. If the device has no addresses for large ones, small ones do. */
static void a_large_pool_maps_few_granules(void) {
  uint64_t few, many, with, without;
  few = run_large(8 * MIB, &with);
  many = run_large(2 * MIB, &without);
  DEMAND(few < many / 2 && with < without + without / 100);
}

/* Beside large granules, a block that is smaller than one takes no such, and one that is
 * larger takes what is free in small ones. */
static void small_blocks_take_small_granules(void) {
  world *w = fresh(256 * GIB, 0);
  uint64_t low = get(w, GIB / 2), other;
  while (counters(w).reserved_bytes < 17 * GIB)
    get(w, GIB / 2);
  other = get(w, 9 * MIB);
  DEMAND(w->largest == 8 * MIB && unit_at(w, low) == 2 * MIB && unit_at(w, other) == 8 * MIB);
  DEMAND(counters(w).reserved_bytes == 17 * GIB + 16 * MIB && unit_at(w, get(w, 7 * MIB)) == 8 * MIB); /* which is free */
  uint64_t reserved = counters(w).reserved_bytes;
  DEMAND(unit_at(w, get(w, 3 * MIB)) == 2 * MIB && counters(w).reserved_bytes == reserved + 4 * MIB);
  lose(w, 0);
  DEMAND(get(w, GIB / 2) == low && counters(w).reserved_bytes == reserved + 4 * MIB);
  drop(w);
}

/* A huge block takes large granules, however small the pool is. What is smaller goes on in small ones,
 * and uses the large ones that are free. */
static void huge_blocks_take_large_granules(void) {
  world *w = fresh(256 * GIB, 0);
  uint64_t first = get(w, 100 * MIB), huge = get(w, GIB), next = get(w, 100 * MIB);
  DEMAND(unit_at(w, first) == 2 * MIB && unit_at(w, huge) == 8 * MIB && unit_at(w, next) == 2 * MIB);
  DEMAND(unit_at(w, get(w, GIB - 8 * MIB)) == 2 * MIB);
  uint64_t reserved = counters(w).reserved_bytes;
  lose(w, 1);
  DEMAND(get(w, 100 * MIB) == huge && counters(w).reserved_bytes == reserved);
  drop(w);
}

/* However long memory moves, its rooms do not run out of addresses: what a room has lost lies
 * between, and is used again. */
static void rooms_are_used_again(void) {
  world *w = fresh(64 * GIB, 64 * GIB);
  uint64_t rooms = 0;
  for (int i = 0; i < 40; i++) {
    churn(w, 500, i % 2 == 0 ? 40 * GIB : 30 * GIB);
    stplan_empty_cache(w->device);
    rooms = i == 1 ? w->rooms : rooms;
  }
  stplan_counters c = counters(w);
  printf("%llu rooms, %.1f GiB moved, reserved %.4f\n", (unsigned long long)w->rooms, (double)c.moved_bytes / (double)GIB, (double)c.peak_reserved_bytes / (double)c.peak_allocated_bytes);
  DEMAND(w->rooms == rooms);
  drop(w);
}

/* Pins keep granules of any size, pauses give them and take them back, and when moving ends what
 * is free stays in use. */
static void large_granules_pin_pause_and_stay(void) {
  world *w = fresh(256 * GIB, 0);
  get(w, 16 * GIB);
  uint64_t first = get(w, 100 * MIB), second = get(w, 100 * MIB), given, taken;
  DEMAND(unit_at(w, first) == 8 * MIB && unit_at(w, second) == 8 * MIB);
  DEMAND(stplan_pin(w->device, second + 50 * MIB, 1) == STPLAN_OK);
  lose(w, 2);
  lose(w, 1);
  uint64_t reserved = counters(w).reserved_bytes;
  DEMAND(stplan_pause(w->device, &given) == STPLAN_OK && given == reserved - 16 * GIB - 8 * MIB);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &taken) == STPLAN_OK && taken == given && counters(w).reserved_bytes == reserved);
  stplan_stop_moving(w->device);
  get(w, 190 * MIB);
  DEMAND(counters(w).reserved_bytes == reserved && counters(w).growths > 0);
  DEMAND(stplan_unpin(w->device, second + 50 * MIB, 1) == STPLAN_OK);
  drop(w);
}

/* Threads whose blocks come and go on two streams never share a byte, while memory moves
 * between the rooms of a pool whose granules are so small that it soon has large ones. */
enum { THREADS = 3, FINE = 16 << 10, OWN = 4096, BLOCKS = 60, OPERATIONS = 4000 };
#define SMALL_CAPACITY (512 * MIB)
static _Atomic unsigned char *owned;
static stplan_device *shared;

static void own(uint64_t p, uint64_t size, unsigned char from, unsigned char to) {
  for (uint64_t u = (p - BASE) / OWN; u < (p - BASE + size + OWN - 1) / OWN; u++)
    DEMAND(atomic_exchange_explicit(&owned[u], to, memory_order_relaxed) == from);
}

static void *work(void *number) {
  uint64_t seed = (uint64_t)(uintptr_t)number;
  struct {
    uint64_t address, size;
  } live[BLOCKS];
  int count = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    uint64_t size = OWN * (draw(&seed, 8) == 0 ? 1000 + draw(&seed, 2000) : 1 + draw(&seed, 1000));
    uint64_t p = count == BLOCKS ? 0 : stplan_malloc(shared, size, draw(&seed, 2), NULL, NULL);
    if (p != 0) {
      own(p, size, 0, 1);
      live[count].address = p;
      live[count++].size = size;
    }
    while (count > 0 && (p == 0 || draw(&seed, 2) == 0)) {
      int k = (int)draw(&seed, (uint64_t)count);
      own(live[k].address, live[k].size, 1, 0);
      DEMAND(stplan_free(shared, live[k].address, draw(&seed, 2)) == STPLAN_OK);
      live[k] = live[--count];
      p = 1;
    }
    if (draw(&seed, 512) == 0)
      stplan_empty_cache(shared);
    if (draw(&seed, 256) == 0)
      stplan_resume(shared, draw(&seed, SMALL_CAPACITY), &(uint64_t){0});
  }
  while (count-- > 0) {
    own(live[count].address, live[count].size, 1, 0);
    DEMAND(stplan_free(shared, live[count].address, 0) == STPLAN_OK);
  }
  return NULL;
}

static void threads_share_no_byte(void) {
  const sp_host_options options = {.base = BASE, .capacity = SMALL_CAPACITY, .granularity = FINE, .partial = 1};
  sp_prim prim;
  world w = {.count = 0};
  pthread_t threads[THREADS];
  owned = calloc(SP_HOST_ADDRESSES * SMALL_CAPACITY / OWN, 1);
  DEMAND(owned != NULL && sp_host_open(&options, &prim));
  w.host = prim;
  at_work = &w;
  prim.extend = extend; /* which one thread at a time calls */
  DEMAND(stplan_open(&prim, NULL, 0, &shared) == STPLAN_OK);
  uint64_t filled = stplan_malloc(shared, 140 * MIB, 0, NULL, NULL);
  DEMAND(filled != 0);
  for (uintptr_t i = 0; i < THREADS; i++)
    DEMAND(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  DEMAND(w.largest == 4 * FINE && stplan_free(shared, filled, 0) == STPLAN_OK);
  stplan_empty_cache(shared);
  stplan_counters c;
  stplan_read(shared, &c);
  printf("%llu rooms, %.1f MiB moved\n", (unsigned long long)w.rooms, (double)c.moved_bytes / (double)MIB);
  DEMAND(c.reserved_bytes == 0 && c.allocated_bytes == 0);
  stplan_close(shared);
  free(owned);
}

int main(void) {
  a_large_pool_maps_few_granules();
  small_blocks_take_small_granules();
  huge_blocks_take_large_granules();
  rooms_are_used_again();
  large_granules_pin_pause_and_stay();
  threads_share_no_byte();
  return 0;
}
