/* proven.c: a process that is told of a plan which an earlier run has followed: its memory comes in
 * larger granules. What has no plan is as ever.
 *
 *   proven PLAN.bin: a plan of device 0 whose first request is of 4 MiB */
#include "../plan.h"
#include "../prim_host.h"
#include "../process.h"

#include "conformance.h"

enum { MIB = 1 << 20, FINE = 4 << 10 };

static int open_host(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  const sp_host_options options = {.base = UINT64_C(1) << (40 + ordinal), .capacity = UINT64_C(1) << 30, .granularity = FINE, .partial = memory != SP_CUDA_PLAIN};
  snprintf(error, size, "no memory");
  return sp_host_open(&options, prim);
}

/* granules is the size of the granules of a device's plan, once that has memory; 0 without a plan. */
static uint64_t granules(int ordinal) {
  stplan_counters c;
  DEMAND(stplan_at(ordinal) != NULL && stplan_malloc(stplan_at(ordinal), 4 * MIB, 0, NULL, NULL) != 0);
  stplan_read(stplan_at(ordinal), &c);
  return c.plan_granule_bytes;
}

int main(int argc, char **argv) {
  char error[256];
  stplan_plan *plan;
  DEMAND(argc == 2 && stplan_plan_open(argv[1], &plan, error, sizeof error) == STPLAN_OK);
  const stplan_settings settings = {.plan = argv[1], .memory = SP_CUDA_VIRTUAL, .proven = plan->devices[0].checksum};
  stplan_plan_close(plan);
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_OK);
  DEMAND(granules(0) > FINE && stplan_planned(0));
  /* The plan of the one device is lent to another, once. */
  DEMAND(granules(1) > FINE && stplan_planned(1));
  DEMAND(granules(2) == 0 && !stplan_planned(2));
  return 0;
}
