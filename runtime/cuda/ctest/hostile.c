/* hostile.c: plans that keep every rule of the format and make no sense, served
 * to programs that follow them more or less, from the beginning or put in place in the run.
 * No two blocks may share a byte.
 *
 *   hostile PLANS: a file of plans, each preceded by its length in 8 bytes */
#include <string.h>

#include "../plan.h"
#include "../prim_host.h"

#include "conformance.h"

enum { LIVE = 24, STEPS = 400, STREAMS = 3 };

#define BASE (UINT64_C(1) << 40)
#define CAPACITY (UINT64_C(64) << 20)

static uint64_t seed = 1;

static uint64_t draw(uint64_t below) {
  seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (seed >> 33) % below;
}

/* next_size is mostly the size of the next slot. */
static uint64_t next_size(const sp_plan_device *of, uint64_t *at) {
  if (of->slot_count == 0 || draw(8) == 0)
    return 1 + draw(1 << 16);
  uint64_t size = sp_plan_slot(of, (*at)++ % of->slot_count).requested;
  return size > 0 && size < CAPACITY ? size : 512;
}

/* How a plan is served: from plain memory, from memory that moves, or put in place in the run. */
typedef enum { PLAIN, VIRTUAL, INSTALLED, WAYS } way;

static uint64_t installs, planned; /* of all plans: put in place, and the requests that those served */

/* besides is what a program does now and then; moving ends in some runs. */
static void besides(stplan_device *d, int still) {
  uint64_t bytes;
  switch (draw(150)) {
  case 0: case 1: case 2: stplan_mark(d); break;
  case 3: stplan_pause(d, &bytes); break;
  case 4: stplan_resume(d, draw(CAPACITY), &bytes); break;
  case 5: stplan_set_limit(d, draw(2) == 0 ? 0 : draw(CAPACITY)); break;
  case 6: if (still) stplan_stop_moving(d); break;
  }
}

static void serve(const stplan_plan *plan, const sp_plan_device *of, way how) {
  struct {
    uint64_t address, size;
  } live[LIVE];
  int count = 0;
  uint64_t at = 0;
  const sp_host_options options = {.base = BASE, .capacity = CAPACITY, .granularity = 2 << 20, .partial = how != PLAIN};
  sp_prim prim;
  stplan_device *d;
  DEMAND(sp_host_open(&options, &prim) && stplan_open(&prim, how == INSTALLED ? NULL : plan, (int)of->ordinal, &d) == STPLAN_OK);
  int still = draw(4) == 0, asked = 0;
  for (int step = 0; step < STEPS; step++) {
    besides(d, still);
    if (how == INSTALLED && asked < 2 && step % 100 == 20)
      asked += stplan_install(d, plan, (int)of->ordinal) == STPLAN_OK;
    if (count == LIVE || (count > 0 && draw(2) == 0)) {
      int k = (int)draw((uint64_t)count);
      DEMAND(stplan_release(d, live[k].address, NULL) == STPLAN_OK);
      live[k] = live[--count];
      continue;
    }
    uint64_t size = next_size(of, &at), p = stplan_malloc(d, size, draw(STREAMS), NULL, NULL);
    if (p == 0)
      continue;
    for (int i = 0; i < count; i++)
      DEMAND(live[i].address + live[i].size <= p || p + size <= live[i].address);
    live[count].address = p;
    live[count++].size = size;
  }
  while (count > 0)
    DEMAND(stplan_release(d, live[--count].address, NULL) == STPLAN_OK);
  stplan_counters c;
  stplan_read(d, &c);
  DEMAND(c.allocated_bytes == 0 && c.reserved_bytes <= CAPACITY);
  installs += c.installs;
  planned += how == INSTALLED ? c.planned_allocations : 0;
  stplan_close(d);
}

int main(int argc, char **argv) {
  char error[256];
  uint64_t length;
  long served = 0;
  FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
  DEMAND(f != NULL);
  for (; fread(&length, sizeof length, 1, f) == 1; served++) {
    uint8_t *data = malloc(length);
    stplan_plan *plan;
    DEMAND(data != NULL && fread(data, 1, length, f) == length);
    DEMAND(stplan_plan_parse(data, length, &plan, error, sizeof error) == STPLAN_OK);
    for (uint32_t i = 0; i < plan->device_count; i++)
      for (int how = 0; how < WAYS && plan->devices[i].ordinal <= INT32_MAX; how++)
        serve(plan, &plan->devices[i], (way)how);
    stplan_plan_close(plan);
    free(data);
  }
  fclose(f);
  printf("%ld plans, %llu put in place, %llu requests served by those\n", served, (unsigned long long)installs, (unsigned long long)planned);
  DEMAND(installs > 0 && planned > 0);
  return 0;
}
