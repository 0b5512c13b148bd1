/* libraries.c: what a pool that has taken almost all of a device leaves to libraries, on a simulated device. */
#include "../prim_host.h"
#include "../sizes.h"

#include "conformance.h"

#define MIB (UINT64_C(1) << 20)
#define BASE (UINT64_C(1) << 40)
#define LEFT (32 * MIB) /* what docs/runtime.md promises */

enum { MANY = 40, FREES = 10000 };

/* A device. */
typedef struct {
  sp_prim host;
  stplan_device *device;
} world;

static world fresh(uint64_t capacity) {
  const sp_host_options options = {.base = BASE, .capacity = capacity, .granularity = 2 * MIB, .partial = 1};
  world w;
  DEMAND(sp_host_open(&options, &w.host) && stplan_open(&w.host, NULL, 0, &w.device) == STPLAN_OK);
  return w;
}

static uint64_t get(const world *w, uint64_t size) {
  uint64_t p = stplan_malloc(w->device, size, 1, NULL, NULL);
  DEMAND(p != 0);
  return p;
}

static void put(const world *w, uint64_t p) { DEMAND(stplan_free(w->device, p, 1) == STPLAN_OK); }

static uint64_t room(const world *w) {
  uint64_t bytes;
  DEMAND(w->host.room(w->host.self, &bytes) == 0);
  return bytes;
}

static uint64_t reserved(const world *w) {
  stplan_counters c;
  stplan_read(w->device, &c);
  return c.reserved_bytes;
}

/* go_on is a program that uses little memory for a while. */
static void go_on(const world *w) {
  for (int i = 0; i < FREES; i++)
    put(w, get(w, 4096));
}

/* Blocks take all of the device. Once some are free, libraries get their part, and no more. */
static void idle_memory_goes_back(void) {
  world w = fresh(300 * MIB);
  uint64_t small = get(&w, 4096), blocks[4];
  for (int i = 0; i < 4; i++)
    blocks[i] = get(&w, 74 * MIB);
  DEMAND(room(&w) < 4 * MIB);
  go_on(&w);
  DEMAND(room(&w) < 4 * MIB); /* nothing is idle */
  put(&w, blocks[2]);
  go_on(&w);
  DEMAND(room(&w) >= LEFT && room(&w) <= LEFT + 2 * MIB);
  blocks[2] = get(&w, 74 * MIB); /* it is all there for a block that needs it */
  DEMAND(room(&w) < 4 * MIB);
  for (int i = 0; i < 4; i++)
    put(&w, blocks[i]);
  put(&w, small);
  stplan_close(w.device);
}

/* What the device may still use is not given back, and nothing waits for it. */
static void memory_in_use_stays(void) {
  world w = fresh(300 * MIB);
  uint64_t a = get(&w, 140 * MIB), b = get(&w, 140 * MIB);
  sp_host_lag(&w.host, SP_HOST_STALLED);
  put(&w, a);
  go_on(&w);
  DEMAND(room(&w) < LEFT);
  sp_host_lag(&w.host, 0);
  go_on(&w);
  DEMAND(room(&w) >= LEFT);
  put(&w, b);
  stplan_close(w.device);
}

/* Small needs, which a pool grows for as long as the device has memory, get idle memory before the last of it. */
static void the_last_memory_is_taken_last(void) {
  world w = fresh(300 * MIB);
  uint64_t blocks[MANY], more[8];
  for (int i = 0; i < MANY; i++)
    blocks[i] = get(&w, 6 * MIB);
  for (int i = 0; i < MANY; i += 2)
    put(&w, blocks[i]);
  uint64_t before = reserved(&w);
  for (int i = 0; i < 8; i++)
    more[i] = get(&w, 10 * MIB);
  DEMAND(room(&w) >= LEFT);
  DEMAND(reserved(&w) > before); /* it has grown, as far as that */
  for (int i = 0; i < 8; i++)
    put(&w, more[i]);
  for (int i = 1; i < MANY; i += 2)
    put(&w, blocks[i]);
  stplan_close(w.device);
}

/* Another process that takes all but a granule of what it is given is not fed for ever. */
static void another_process_is_not_fed(void) {
  world w = fresh(2048 * MIB);
  uint64_t taken = 0, live = get(&w, 512 * MIB), least = UINT64_MAX;
  for (int i = 0; i < 100; i++) {
    uint64_t idle = reserved(&w) - 512 * MIB;
    put(&w, get(&w, idle + sp_round_down(room(&w), 2 * MIB)));
    go_on(&w);
    uint64_t takes = room(&w) - sp_least(room(&w), 2 * MIB);
    sp_host_occupy(&w.host, taken += takes);
    least = sp_least(least, takes);
  }
  DEMAND(taken >= 256 * MIB && taken <= 256 * MIB + 2 * LEFT && least == 0);
  put(&w, live);
  stplan_close(w.device);
}

/* A limit is the user's: the device has more. */
static void limits_leave_nothing(void) {
  world w = fresh(2048 * MIB);
  stplan_set_limit(w.device, 300 * MIB);
  uint64_t a = get(&w, 150 * MIB), b = get(&w, 150 * MIB);
  put(&w, a);
  go_on(&w);
  DEMAND(reserved(&w) >= 300 * MIB);
  put(&w, b);
  stplan_close(w.device);
}

int main(void) {
  idle_memory_goes_back();
  memory_in_use_stays();
  the_last_memory_is_taken_last();
  another_process_is_not_fed();
  limits_leave_nothing();
  return 0;
}
