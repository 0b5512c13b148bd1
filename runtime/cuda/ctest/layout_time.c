/* layout_time.c: prints what finding places for other sizes costs a pass, in microseconds. One
 * quantity grows from pass to pass, from the largest that was recorded on, and every size that
 * varies follows it. So each key finds its segment's places anew, which is the worst a pass can
 * be: a run whose quantity has been as large before finds none. It prints the median of the
 * passes, the longest pass, the longest single request, and how many requests a pass has.
 *
 *   layout_time PLAN: a periodic plan whose large sizes vary */
#include <string.h>
#include <time.h>

#include "../match_layout.h"
#include "../plan.h"

#include "conformance.h"

/* 25 passes take a second at most. The first two teach the laws, and are not counted. In each pass
 * the distance of a size from the least that was recorded grows by 1/STEP of what it was there. */
enum { PASSES = 25, TAUGHT = 2, STEP = 16 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int count, char **arguments) {
  stplan_plan *plan;
  char error[256];
  sp_sequence s;
  sp_layout *l;
  double passes[PASSES], longest = 0;
  DEMAND(count == 2 && stplan_plan_open(arguments[1], &plan, error, sizeof error) == STPLAN_OK);
  DEMAND(sp_sequence_make(&s, &plan->devices[0]) && sp_layout_make(&l, &s, &plan->devices[0]));
  if (l == NULL) {
    printf("no large sizes vary\n");
    return 1;
  }
  uint64_t first = s.parts[1].first, end = s.parts[1].end; /* the first body */
  for (int pass = 0; pass < PASSES; pass++) {
    passes[pass] = 0;
    for (uint64_t i = first; i < end; i++) {
      uint64_t spread = s.steps[i].most - s.steps[i].least;
      uint64_t size = s.steps[i].most + spread / STEP * (uint64_t)(1 + pass);
      double begin = now();
      sp_layout_note(l, &s, i, size, (uint64_t)pass + 1);
      double took = now() - begin;
      if (sp_laws_segment(sp_layout_laws(l), i)->key != i)
        continue;
      passes[pass] += took;
      if (pass >= TAUGHT && took > longest)
        longest = took;
    }
  }
  qsort(passes + TAUGHT, PASSES - TAUGHT, sizeof *passes, order);
  printf("%.1f %.1f %.1f %llu\n", passes[(TAUGHT + PASSES) / 2], passes[PASSES - 1], longest, (unsigned long long)(end - first));
  sp_layout_drop(l);
  sp_sequence_drop(&s);
  stplan_plan_close(plan);
  return 0;
}
