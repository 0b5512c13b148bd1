/* shared_counters.c: the counters that a device keeps in a file are written and
 * never read. What others write into the file changes neither the addresses
 * that are handed out, nor the counters of the device itself. As long as nobody
 * else writes there, the file has them all.
 *
 *   shared_counters FILE PLAN.bin: the plan has the sizes of fixture_test.go */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../prim_host.h"

#include "conformance.h"

enum { STEPS = 12000, LIVE = 40, STREAMS = 3, MIB = 1 << 20, TWINS = 2, SHARING = 1 };

/* Requests as planned, at first: the plan is on trial (device_plan.c). */
enum { TRIAL = 2048 };

#define CAPACITY (UINT64_C(1) << 30)

static uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (*seed >> 33) % below;
}

/* spoil writes anything into the file: other states, nothing at all, and far too much. */
static void spoil(volatile uint64_t *words, uint64_t *seed) {
  static const uint64_t bytes[] = {0, 1, 64 * MIB, CAPACITY, UINT64_C(1) << 50, UINT64_MAX};
  for (size_t i = 0; i < sizeof(stplan_counters) / sizeof(uint64_t); i++)
    words[i] = bytes[draw(seed, sizeof bytes / sizeof *bytes)];
  words[1] = draw(seed, STPLAN_DECLINED + 2); /* state */
}

/* next_size is mostly that of the plan; later sometimes one for which memory has to move. */
static uint64_t next_size(uint64_t *seed, size_t *at) {
  static const uint64_t planned[] = {4096, 65536, MIB, 300000, 4096, 2 * MIB, 512, 131072};
  if (*at >= TRIAL && draw(seed, 100) == 0)
    return (20 + draw(seed, 40)) * MIB;
  if (*at >= TRIAL && draw(seed, 20) == 0)
    return 1 + draw(seed, 4 * MIB);
  return planned[(*at)++ % (sizeof planned / sizeof *planned)];
}

/* serve has both twins do the same, one of them with a file that others write,
 * if `spoilt`. The answer is their counters. */
static stplan_counters serve(const stplan_plan *plan, const char *path, int spoilt, uint64_t seed) {
  stplan_device *twin[TWINS];
  stplan_counters counters[TWINS];
  for (int i = 0; i < TWINS; i++) {
    const sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = CAPACITY, .granularity = 2 * MIB, .partial = 1};
    sp_prim prim;
    DEMAND(sp_host_open(&options, &prim) && stplan_open(&prim, plan, 0, &twin[i]) == STPLAN_OK);
    stplan_set_limit(twin[i], CAPACITY / 4);
  }
  DEMAND(stplan_share(twin[SHARING], path) == STPLAN_OK);
  int file = open(path, O_RDWR);
  volatile uint64_t *words = mmap(NULL, sizeof(stplan_counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  DEMAND(file >= 0 && (void *)words != MAP_FAILED);
  close(file);
  uint64_t live[LIVE];
  int count = 0;
  size_t at = 0;
  for (int step = 0; step < STEPS; step++) {
    if (spoilt)
      spoil(words, &seed);
    if (count == LIVE || (count > 0 && draw(&seed, 2) == 0)) {
      int k = (int)draw(&seed, (uint64_t)count);
      for (int i = 0; i < TWINS; i++)
        DEMAND(stplan_release(twin[i], live[k], NULL) == STPLAN_OK);
      live[k] = live[--count];
    } else {
      uint64_t size = next_size(&seed, &at), stream = draw(&seed, 30) > 0 ? 0 : draw(&seed, STREAMS), address[TWINS];
      stplan_source source[TWINS] = {STPLAN_FROM_GAP, STPLAN_FROM_GAP};
      for (int i = 0; i < TWINS; i++)
        address[i] = stplan_malloc(twin[i], size, stream, &source[i], NULL);
      DEMAND(address[0] == address[1] && source[0] == source[1]);
      if (address[0] != 0)
        live[count++] = address[0];
    }
    DEMAND(draw(&seed, 2000) > 0 || stplan_empty_cache(twin[0]) == stplan_empty_cache(twin[1]));
    uint64_t taken[TWINS] = {0}, most = draw(&seed, 2000) > 0 ? 0 : UINT64_MAX;
    DEMAND(stplan_resume(twin[0], most, &taken[0]) == stplan_resume(twin[1], most, &taken[1]) && taken[0] == taken[1]);
    for (int i = 0; i < TWINS; i++)
      stplan_read(twin[i], &counters[i]);
    DEMAND(memcmp(&counters[0], &counters[1], sizeof counters[0]) == 0);
    DEMAND(spoilt || memcmp(&counters[SHARING], (const void *)words, sizeof counters[SHARING]) == 0);
  }
  for (int i = 0; i < TWINS; i++)
    stplan_close(twin[i]);
  munmap((void *)words, sizeof(stplan_counters));
  return counters[0];
}

int main(int argc, char **argv) {
  char error[256];
  stplan_plan *plan;
  DEMAND(argc == 3 && stplan_plan_open(argv[2], &plan, error, sizeof error) == STPLAN_OK);
  uint64_t planned = 0, moved = 0;
  for (uint64_t seed = 0; seed < 4; seed++) {
    stplan_counters c = serve(seed % 2 == 0 ? plan : NULL, argv[1], seed < 2, seed + 1);
    planned += c.planned_allocations;
    moved += c.moved_bytes;
  }
  DEMAND(planned > STEPS / 10 && moved > 0);
  stplan_plan_close(plan);
  return 0;
}
