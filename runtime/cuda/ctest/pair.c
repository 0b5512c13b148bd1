/* pair.c: prints what an allocation and its free cost, in nanoseconds: from the
 * pool, beside many other blocks, the same with a history, or by a plan.
 *
 *   pair PAIRS [--history | PLAN.bin] */
#include <string.h>
#include <time.h>

#include "../prim_host.h"

#include "conformance.h"

enum { LIVE = 3000, DEEP = 8 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* populate allocates many blocks, and frees every other one. */
static void populate(stplan_device *d) {
  uint64_t p[LIVE], seed = 1;
  for (int i = 0; i < LIVE; i++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    p[i] = stplan_malloc(d, 512 + (seed >> 33) % (4 << 20), 0, NULL, NULL);
  }
  for (int i = 0; i < LIVE; i += 2)
    stplan_free(d, p[i], 0);
}

int main(int argc, char **argv) {
  /* The sizes of the plan, as fixture_test.go has them. */
  static const size_t sizes[DEEP] = {4096, 65536, 1 << 20, 300000, 4096, 2 << 20, 512, 131072};
  long pairs = argc > 1 ? atol(argv[1]) : 0;
  int keep = argc > 2 && strcmp(argv[2], "--history") == 0;
  sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = UINT64_C(1) << 40, .granularity = 2 << 20, .partial = 1};
  sp_prim prim;
  char error[256];
  stplan_plan *plan = NULL;
  stplan_device *d;
  DEMAND(pairs > 0 && sp_host_open(&options, &prim));
  DEMAND(argc < 3 || keep || stplan_plan_open(argv[2], &plan, error, sizeof error) == STPLAN_OK);
  DEMAND(stplan_open(&prim, plan, 0, &d) == STPLAN_OK);
  /* It must not be full before the end: then it would cost nothing. */
  DEMAND(!keep || stplan_history_begin(d, UINT64_C(1) << 40) == STPLAN_OK);
  if (plan == NULL)
    populate(d);
  double begin = now();
  for (long i = 0; i < pairs / DEEP; i++) {
    uint64_t p[DEEP];
    for (int k = 0; k < DEEP; k++)
      p[k] = stplan_malloc(d, sizes[k], 0, NULL, NULL);
    for (int k = 0; k < DEEP; k++)
      stplan_free(d, p[k], 0);
  }
  printf("%.1f\n", (now() - begin) / (double)pairs);
  stplan_close(d);
  stplan_plan_close(plan);
  return 0;
}
