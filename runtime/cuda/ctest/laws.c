/* laws.c: two micro-batches of a step, each with a length of its own. The second segment begins
 * with the second one's first block, and not with a block that is left of the first one, though
 * both are crossed by nothing. */
#include <string.h>

#include "../match_laws.h"

#include "conformance.h"

enum { LAYERS = 12, LEFT = 5, MICRO_BATCHES = 2, STEPS = MICRO_BATCHES * (2 * LAYERS + LEFT), KIB = 1024 };

/* Lengths of each micro-batch in the passes with the shortest and the longest. */
static const uint64_t shortest[MICRO_BATCHES] = {900, 500}, longest[MICRO_BATCHES] = {1600, 1400};

/* micro_batch adds the steps of one from `first` on: its layers keep blocks until the backward
 * pass, which has one block at a time, and so has what comes after it. */
static void micro_batch(sp_step *steps, uint64_t first, int number) {
  uint64_t end = first + 2 * LAYERS + LEFT;
  for (uint64_t i = first; i < end; i++) {
    uint64_t at = i - first, bytes = (1 + at % 3) * KIB; /* for each token */
    steps[i] = (sp_step){.least = shortest[number] * bytes, .most = longest[number] * bytes, .end = i + 1, .beyond = i, .placed = 1};
    if (at < LAYERS)
      steps[i].end = first + 2 * LAYERS - at;
    steps[i].size = steps[i].most;
  }
}

int main(void) {
  sp_step steps[STEPS];
  uint64_t second = STEPS / MICRO_BATCHES;
  for (int number = 0; number < MICRO_BATCHES; number++)
    micro_batch(steps, (uint64_t)number * second, number);
  sp_part parts[] = {{.first = 0, .end = 0, .follower = 1}, {.first = 0, .end = STEPS, .follower = 1}};
  sp_sequence s = {.steps = steps, .count = STEPS, .parts = parts, .part_count = 2, .stream_count = 1, .periodic = 1};
  sp_laws l;
  DEMAND(sp_laws_make(&l, &s));
  DEMAND(sp_laws_segment(&l, 0)->key == 0 && sp_laws_segment(&l, second - 1)->key == 0);
  DEMAND(sp_laws_segment(&l, second)->key == second && sp_laws_segment(&l, STEPS - 1)->key == second);
  DEMAND(sp_laws_likely(&l));
  sp_laws_note(&l, second, 2000 * KIB, 1);
  for (uint64_t i = second + 1; i < STEPS; i++) /* in proportion to the length of the second one */
    DEMAND(sp_laws_size(&l, i, 1) == 2000 * (1 + (i - second) % 3) * KIB);
  sp_laws_drop(&l);
  return 0;
}
