/* laws.c: two micro-batches of a step, each with a length of its own. The second segment begins
 * with the second one's first block, and not with a block that is left of the first one, though
 * both are crossed by nothing. So it does if nothing is kept either while the inputs of a micro-batch are encoded. */
#include <string.h>

#include "../match_hypotheses.h"
#include "../match_laws.h"

#include "conformance.h"

enum { LAYERS = 12, LEFT = 5, ENCODED = 80, MICRO_BATCHES = 2, MOST = MICRO_BATCHES * (ENCODED + 2 * LAYERS + LEFT), KIB = 1024 };

/* Lengths of each micro-batch in the passes with the shortest and the longest. */
static const uint64_t shortest[MICRO_BATCHES] = {900, 500}, longest[MICRO_BATCHES] = {1600, 1400};

/* micro_batch adds the steps of one, and returns how many there are then: of its inputs, one block at a time; of its layers, which
 * keep blocks until the backward pass; of that and of what comes after it, again one at a time. */
static uint64_t micro_batch(sp_step *steps, uint64_t first, int number, uint64_t encoded) {
  uint64_t layers = first + encoded, end = layers + 2 * LAYERS + LEFT;
  for (uint64_t i = first; i < end; i++) {
    uint64_t bytes = (1 + (i - first) % 3) * KIB; /* for each token */
    steps[i] = (sp_step){.least = shortest[number] * bytes, .most = longest[number] * bytes, .end = i + 1, .beyond = i, .placed = 1};
    if (i >= layers && i < layers + LAYERS)
      steps[i].end = layers + 2 * LAYERS - (i - layers);
    steps[i].size = steps[i].most;
  }
  return end;
}

static void check(uint64_t encoded) {
  sp_step steps[MOST];
  uint64_t count = 0;
  for (int number = 0; number < MICRO_BATCHES; number++)
    count = micro_batch(steps, count, number, encoded);
  uint64_t second = count / MICRO_BATCHES;
  sp_part parts[] = {{.first = 0, .end = 0, .follower = 1}, {.first = 0, .end = count, .follower = 1}};
  sp_sequence s = {.steps = steps, .count = count, .parts = parts, .part_count = 2, .stream_count = 1, .periodic = 1};
  sp_laws l;
  DEMAND(sp_laws_make(&l, &s));
  DEMAND(sp_laws_segment(&l, 0)->key == 0 && sp_laws_segment(&l, second - 1)->key == 0);
  DEMAND(sp_laws_segment(&l, second)->key == second && sp_laws_segment(&l, count - 1)->key == second);
  DEMAND(sp_laws_likely(&l));
  sp_laws_note(&l, second, 2000 * KIB, 1);
  for (uint64_t i = second + 1; i < count; i++) { /* in proportion to the length of the second one */
    DEMAND(sp_laws_size(&l, i, 1) == 2000 * (1 + (i - second) % 3) * KIB);
    DEMAND(sp_laws_new_size(&l, steps, i, 1) == sp_laws_size(&l, i, 1)); /* it was never as long */
  }
  sp_laws_note(&l, second, 1000 * KIB, 2);
  for (uint64_t i = second + 1; i < count; i++)
    DEMAND(sp_laws_size(&l, i, 2) > 0 && sp_laws_new_size(&l, steps, i, 2) == 0);
  sp_laws_drop(&l);
}

/* kinds: segments whose keys are not kin are judged each by itself. In the first the run never requests what the laws say,
 * in the second it always does. */
static void kinds(void) {
  sp_step steps[2 * (2 * LAYERS + LEFT)];
  uint64_t second = micro_batch(steps, 0, 0, 0), count = 2 * second;
  for (uint64_t i = second; i < count; i++) {
    uint64_t bytes = (8 + i % 2 * 8) * KIB;
    steps[i] = (sp_step){.least = 500 * bytes, .most = 1400 * bytes, .size = 1400 * bytes, .end = i + 2 < count ? i + 2 : count, .beyond = i, .placed = 1};
  }
  sp_part parts[] = {{.first = 0, .end = 0, .follower = 1}, {.first = 0, .end = count, .follower = 1}};
  sp_sequence s = {.steps = steps, .count = count, .parts = parts, .part_count = 2, .stream_count = 1, .periodic = 1};
  sp_laws l;
  DEMAND(sp_laws_make(&l, &s));
  uint32_t one = l.segment_of[0], other = l.segment_of[count - 1];
  DEMAND(one != other && l.segments[other].key == second);
  DEMAND(!sp_laws_failed_in(&l, one) && !sp_laws_hold_in(&l, one));
  for (uint64_t pass = 1; pass <= 12; pass++)
    for (uint64_t i = 0; i < count; i++) {
      uint64_t said = sp_laws_size(&l, i, pass);
      sp_laws_note(&l, i, i == 0 || i == second ? 600 * steps[i].most / 1400 : i < second ? said * (2 + pass % 3) / 4 : said, pass);
    }
  DEMAND(sp_laws_failed_in(&l, one) && !sp_laws_hold_in(&l, one));
  DEMAND(sp_laws_hold_in(&l, other) && !sp_laws_failed_in(&l, other));
  DEMAND(sp_laws_reach(&l, steps, 1) == steps[1].most && sp_laws_reach(&l, steps, second + 1) < steps[second + 1].most);
  sp_laws_drop(&l);
}

/* found_again: a run that is lost is looked for at the key of the segment that its pointer is in, however far behind that lies, and among as many
 * hypotheses as there is room for. Where it has been found it changes no law before what follows is as the laws say. */
static void found_again(void) {
  enum { CONFIRMED = 8 };
  sp_step steps[MOST];
  uint64_t second = micro_batch(steps, 0, 0, ENCODED), count = micro_batch(steps, second, 1, ENCODED), pointer = count - 1;
  sp_part parts[] = {{.first = 0, .end = 0, .follower = 1}, {.first = 0, .end = count, .follower = 1}};
  sp_sequence s = {.steps = steps, .count = count, .parts = parts, .part_count = 2, .stream_count = 1, .periodic = 1};
  sp_laws l;
  DEMAND(sp_laws_make(&l, &s));
  sp_hypotheses h = {.plan = &s, .laws = &l, .pass = 1};
  sp_recent recent = {.list = {1, 1, 1, 2000 * KIB}, .seen = SP_GRAM};
  sp_hypotheses_raise(&h, pointer, 1, &recent, 0);
  const sp_hypothesis *key = sp_hypotheses_at(&h, second);
  DEMAND(key != NULL && key->reading == 2000 * KIB && key->key == second);
  h.count = SP_HYPOTHESES;
  for (int i = 0; i < SP_HYPOTHESES; i++)
    h.list[i] = (sp_hypothesis){.at = (uint64_t)i + 1, .part = 1, .fitted = 1};
  sp_hypotheses_raise(&h, pointer, 1, &recent, 0);
  DEMAND(h.count == SP_HYPOTHESES && sp_hypotheses_at(&h, second) == NULL);

  sp_laws_note(&l, second, 2000 * KIB, 1);
  sp_laws_suppose(&l, l.segment_of[second]);
  for (uint64_t i = second + 1; i <= second + CONFIRMED; i++) {
    uint64_t said = sp_laws_size(&l, i, 1);
    DEMAND(!sp_laws_note(&l, i, 2 * said, 1) && sp_laws_size(&l, i, 1) == said);
    DEMAND(!sp_laws_note(&l, i, said, 1));
  }
  uint64_t next = second + CONFIRMED + 1, said = sp_laws_size(&l, next, 1);
  DEMAND(sp_laws_note(&l, next, 2 * said, 1) && sp_laws_size(&l, next, 1) == 2 * said);
  sp_laws_drop(&l);
}

int main(void) {
  check(0);
  check(ENCODED);
  kinds();
  found_again();
  return 0;
}
