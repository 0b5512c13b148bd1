/* worth.c: how much more than a run allocates may be reserved by a plan that is served: less if much has moved for
 * it, but for a plan without which more moved.
 *
 *   worth PLAN.bin: a plan of device 0 whose first request is of 4 MiB */
#include "../device.h"
#include "../device_plan_state.h"
#include "../prim_host.h"

#include "conformance.h"

#define PEAK (UINT64_C(1) << 34)

enum { FIRST = 4 << 20 };

/* ends says whether the plan ends with PEAK/share reserved beyond PEAK, which has been allocated, if PEAK/moved has
 * moved just now. */
static int ends(stplan_device *d, uint64_t share, uint64_t moved) {
  stplan_counters *c = &d->counters;
  c->allocated_bytes = c->peak_allocated_bytes = PEAK;
  c->reserved_bytes = c->peak_reserved_bytes = PEAK + PEAK / share;
  d->debt = (sp_debt){.owed = moved == 0 ? 0 : PEAK / moved, .repaid_at = c->allocation_bytes};
  return sp_device_plan_costs(d, 0, 0, SP_EXCESS_ENDS);
}

int main(int argc, char **argv) {
  const sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = UINT64_C(1) << 30, .granularity = 4096, .partial = 1};
  char error[256];
  stplan_plan *plan;
  stplan_device *d;
  sp_prim prim;
  DEMAND(argc == 2 && stplan_plan_open(argv[1], &plan, error, sizeof error) == STPLAN_OK);
  DEMAND(sp_host_open(&options, &prim) && stplan_open(&prim, plan, 0, &d) == STPLAN_OK);
  DEMAND(stplan_malloc(d, FIRST, 0, NULL, NULL) != 0);
  const stplan_counters counted = d->counters;
  sp_device_plan *p = d->plan;
  DEMAND(sp_device_plan_served(d) && !p->doubted);

  DEMAND(!ends(d, 200, 0) && !ends(d, 200, 1)); /* it costs little */
  DEMAND(!ends(d, 50, 0) && ends(d, 20, 0));
  DEMAND(!ends(d, 50, 8) && ends(d, 50, 1)); /* it costs more, and much has moved */

  /* It has been suspended, and nothing moved then. */
  p->doubted = p->kept = 1;
  p->moves[1] = (sp_moves){.moved = 0, .allocated = PEAK};
  DEMAND(!ends(d, 66, 0) && !ends(d, 66, 8) && ends(d, 66, 1) && ends(d, 40, 0));

  /* More moved then than with it. */
  p->moves[0] = (sp_moves){.moved = PEAK / 8, .allocated = PEAK};
  p->moves[1].moved = PEAK / 4;
  DEMAND(!ends(d, 66, 1) && ends(d, 40, 1));
  p->moves_until = (sp_moves){.moved = d->counters.moved_bytes, .allocated = d->counters.allocation_bytes};
  d->counters.moved_bytes += PEAK / 2; /* since then more has moved with it */
  DEMAND(ends(d, 66, 1));

  d->counters = counted;
  d->debt = (sp_debt){0};
  stplan_close(d);
  stplan_plan_close(plan);
  return 0;
}
