/* counters.c: shares the counters of a device in the file that its argument
 * names, gives each counter a number of its own, prints their names in the
 * order of those numbers, and is killed. */
#include <signal.h>
#include <stdio.h>

#include "../device.h"
#include "../prim_host.h"

int main(int argc, char **argv) {
  sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = UINT64_C(1) << 40, .granularity = SP_ALIGNMENT};
  sp_prim prim;
  stplan_device *d;
  if (argc != 2 || !sp_host_open(&options, &prim) || stplan_open(&prim, NULL, 0, &d) != STPLAN_OK)
    return 1;
  if (stplan_share(d, argv[1]) != STPLAN_OK)
    return 1;
  uint64_t number = UINT64_C(1) << 40;
  SP_SET(d, state, STPLAN_OFF);
#define NUMBER(counter) (SP_SET(d, counter, ++number), printf("%s\n", #counter))
  NUMBER(allocated_bytes), NUMBER(peak_allocated_bytes);
  NUMBER(reserved_bytes), NUMBER(peak_reserved_bytes);
  NUMBER(allocations), NUMBER(allocation_bytes);
  NUMBER(planned_allocations), NUMBER(planned_bytes);
  NUMBER(frees), NUMBER(refused_frees), NUMBER(failed_allocations);
  NUMBER(growths), NUMBER(clashes), NUMBER(drift_events), NUMBER(resyncs);
  NUMBER(waits), NUMBER(events_recorded), NUMBER(moved_bytes), NUMBER(displaced_allocations), NUMBER(installs);
  NUMBER(followed_plan), NUMBER(followed_bytes), NUMBER(fitting_bytes), NUMBER(plan_granule_bytes);
  fflush(stdout);
  return raise(SIGKILL);
}
