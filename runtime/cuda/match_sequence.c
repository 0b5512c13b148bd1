#include "match_sequence.h"

#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "sizes.h"

/* steps_new makes steps of which each lies in one line of the cache. */
static sp_step *steps_new(uint64_t count) {
  _Static_assert((sizeof(sp_step) & (sizeof(sp_step) - 1)) == 0, "an alignment is a power of two");
  sp_step *steps = aligned_alloc(sizeof *steps, count * sizeof *steps);
  return steps == NULL ? NULL : memset(steps, 0, count * sizeof *steps);
}

static sp_step step_of(const sp_slot *s, uint32_t occurrences) {
  sp_step step = {
      .least = s->least,
      .most = s->requested,
      .offset = s->offset,
      .size = s->size,
      .stream = s->stream,
      .placed = (s->flags & SP_SLOT_STRAY) == 0,
      .optional = s->occurrences < occurrences,
      .varies = s->least < s->requested,
      .roomy = (s->flags & SP_SLOT_LEAVING) == 0 && s->size > sp_aligned(s->requested),
  };
  return step;
}

/* started is how many of the slots [first, first + count) start before an
 * event; they are in the order of their starts. */
static uint64_t started(const sp_plan_device *plan, uint64_t first, uint64_t count, uint64_t event) {
  uint64_t low = 0, high = count;
  while (low < high) {
    uint64_t mid = low + (high - low) / 2;
    if (sp_plan_slot(plan, first + mid).start < event)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

/* set_ends turns the ends of a part's steps, which are times of its phase, into
 * steps. Times of a body count its steps; those of a prologue are events, which
 * the starts of the slots turn into steps. */
static void set_ends(sp_sequence *s, const sp_plan_device *plan, const sp_part *p, uint64_t first_slot, int events) {
  uint64_t at = p->first;
  for (uint64_t i = first_slot; at < p->end; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if (slot.flags & SP_SLOT_ENTERING)
      continue;
    sp_step *step = &s->steps[at++];
    step->stays = (slot.flags & SP_SLOT_RESIDENT) != 0;
    if (slot.flags & (SP_SLOT_RESIDENT | SP_SLOT_LEAVING | SP_SLOT_STRAY))
      step->end = SP_NOWHERE;
    else if (events)
      step->end = p->first + started(plan, first_slot, p->end - p->first, slot.requested_end);
    else
      step->end = p->first + slot.requested_end;
  }
}

/* set_beyond finds the next step that is not optional, for each step of a part. */
static void set_beyond(sp_sequence *s, const sp_part *p) {
  uint64_t beyond = p->end;
  for (uint64_t i = p->end; i > p->first; i--) {
    if (!s->steps[i - 1].optional)
      beyond = i - 1;
    s->steps[i - 1].beyond = beyond;
  }
}

/* set_turns finds the steps from which on another length decides the sizes: the
 * ratio of the largest size to the smallest differs by more than rounding, 1 %,
 * from the one before. */
static void set_turns(sp_sequence *s, const sp_part *p) {
  const sp_step *before = NULL;
  for (uint64_t i = p->first; i < p->end; i++) {
    sp_step *step = &s->steps[i];
    if (!step->varies)
      continue;
    double ratio = (double)step->most / (double)(step->least + 1);
    double last = before == NULL ? 0 : (double)before->most / (double)(before->least + 1);
    step->turns = ratio < last * 0.99 || last < ratio * 0.99;
    before = step;
  }
}

/* add_part appends the allocations among slots [first, end). */
static void add_part(sp_sequence *s, const sp_plan_device *plan, uint64_t first, uint64_t end, uint32_t occurrences) {
  sp_part *p = &s->parts[s->part_count++];
  p->first = s->count;
  for (uint64_t i = first; i < end; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if ((slot.flags & SP_SLOT_ENTERING) == 0)
      s->steps[s->count++] = step_of(&slot, occurrences);
  }
  p->end = s->count;
  set_beyond(s, p);
  set_turns(s, p);
  set_ends(s, plan, p, first, p == s->parts);
}

void sp_sequence_loosen(sp_sequence *s) {
  uint64_t varying = 0, after = s->periodic ? s->parts[0].end : s->count;
  for (uint64_t i = 0; i < s->count; i++) {
    s->steps[i].varies = s->steps[i].least < s->steps[i].most;
    s->steps[i].below = s->steps[i].above = 0;
  }
  for (uint64_t i = after; i < s->count; i++)
    varying += s->steps[i].varies;
  if (varying * 2 < s->count - after || !s->periodic)
    return;
  for (uint64_t i = 0; i < after; i++)
    s->steps[i].varies = !s->steps[i].stays;
}

/* set_shared marks the steps that share places, and those whose places they share: `at` is the step of each slot. */
static void set_shared(sp_sequence *s, const sp_plan_device *plan, const uint32_t *at) {
  for (uint64_t i = 0; i < plan->slot_count; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if ((slot.flags & SP_SLOT_SHARES) == 0)
      continue;
    sp_step *both[] = {&s->steps[at[i]], &s->steps[at[slot.cell]]};
    for (int k = 0; k < 2; k++) {
      both[k]->shared = 1;
      both[k]->roomy = 0;
    }
    s->shares = 1;
  }
}

/* find_shared does so for all slots. 0 without host memory. */
static int find_shared(sp_sequence *s, const sp_plan_device *plan) {
  uint32_t *at = calloc(plan->slot_count + 1, sizeof *at), next = 0;
  if (at == NULL)
    return 0;
  for (uint64_t i = 0; i < plan->slot_count; i++) {
    at[i] = next;
    next += (sp_plan_slot(plan, i).flags & SP_SLOT_ENTERING) == 0;
  }
  set_shared(s, plan, at);
  free(at);
  return 1;
}

/* follow finds for each part the body that came after it most often, the first of
 * equals. What follows the last pass is not recorded. 0 without host memory. */
static int follow(sp_sequence *s, const sp_plan_device *plan) {
  uint64_t n = s->part_count, *times = calloc(n * n, sizeof *times);
  if (times == NULL)
    return 0;
  uint32_t before = 0;
  for (uint64_t i = 0; i < plan->pass_count; i++) {
    uint32_t phase = sp_plan_pass(plan, i).phase;
    times[before * n + phase]++;
    before = phase;
  }
  for (uint64_t p = 0; p < n; p++) {
    uint64_t best = 1;
    for (uint64_t q = 2; q < n; q++)
      if (times[p * n + q] > times[p * n + best])
        best = q;
    s->parts[p].follower = s->parts[best].first;
  }
  free(times);
  return 1;
}

/* Bodies that are compared with one another. It bounds the time in which a plan opens. */
enum { COMPARED = 8 };

/* A factor: a request of a size that varies may be this much smaller or larger than any
 * recorded one. A larger factor would take more requests for steps that they are not. */
enum { VARIES = 4 };

/* near says whether the sizes of two steps are within VARIES times one another. */
static int near(const sp_step *x, const sp_step *y) { return x->most >= y->least / VARIES && y->most >= x->least / VARIES; }

/* life is how many steps a step of a part lives, SP_NOWHERE if that is beyond the part's first `count` steps. */
static uint64_t life(const sp_sequence *s, const sp_part *p, uint64_t at, uint64_t count) {
  uint64_t end = s->steps[at].end;
  return end == SP_NOWHERE || end >= p->first + count ? SP_NOWHERE : end - at;
}

/* alike says whether the steps of this number of two bodies may be the same line of the program; `count` is those of the
 * shorter body. The sizes of one that varies lie, in the few passes that one body was recorded in, anywhere near those of
 * the other. So do those of one that does not vary if the shortest batches come in the other body only: then the two live as long. */
static int alike(const sp_sequence *s, const sp_part *a, const sp_part *b, uint64_t number, uint64_t count) {
  const sp_step *x = &s->steps[a->first + number], *y = &s->steps[b->first + number];
  int varies = x->least < x->most || y->least < y->most;
  if (x->stream != y->stream || !near(x, y))
    return 0;
  return varies || x->least == y->least || life(s, a, a->first + number, count) == life(s, b, b->first + number, count);
}

/* begins_with says whether body a begins with all of body b, by sizes, streams and lifetimes. */
static int begins_with(const sp_sequence *s, const sp_part *a, const sp_part *b) {
  uint64_t count = b->end - b->first;
  if (count >= a->end - a->first)
    return 0;
  for (uint64_t i = 0; i < count; i++)
    if (!alike(s, a, b, i, count))
      return 0;
  return 1;
}

/* set_stops finds where the longest shorter body ends in each body that begins with it, as a step
 * with an evaluation begins with one without. */
static void set_stops(sp_sequence *s) {
  for (uint64_t a = 0; a < s->part_count; a++) {
    sp_part *p = &s->parts[a];
    p->stop = SP_NOWHERE;
    for (uint64_t b = 1; b < s->part_count && a > 0 && a <= COMPARED && b <= COMPARED; b++) {
      uint64_t end = p->first + s->parts[b].end - s->parts[b].first;
      if ((p->stop == SP_NOWHERE || end > p->stop) && begins_with(s, p, &s->parts[b]))
        p->stop = end;
    }
  }
}

uint64_t sp_gram_hash(const uint64_t requested[SP_GRAM]) {
  uint64_t h = 0;
  for (int i = 0; i < SP_GRAM; i++) {
    h = (h ^ requested[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  return h;
}

static int gram_order(const void *a, const void *b) {
  const sp_gram *x = a, *y = b;
  if (x->hash != y->hash)
    return x->hash < y->hash ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

/* add_grams lists every run of SP_GRAM steps of constant size within a part. */
static void add_grams(sp_sequence *s) {
  for (uint64_t p = 0; p < s->part_count; p++)
    for (uint64_t i = s->parts[p].first + SP_GRAM - 1; i < s->parts[p].end; i++) {
      uint64_t sizes[SP_GRAM];
      int constant = 1;
      for (int k = 0; k < SP_GRAM; k++) {
        const sp_step *step = &s->steps[i - SP_GRAM + 1 + (uint64_t)k];
        constant &= !step->varies;
        sizes[k] = step->most;
      }
      if (constant)
        s->grams[s->gram_count++] = (sp_gram){sp_gram_hash(sizes), i};
    }
  qsort(s->grams, s->gram_count, sizeof *s->grams, gram_order);
}

int sp_sequence_make(sp_sequence *s, const sp_plan_device *plan) {
  *s = (sp_sequence){.stream_count = plan->stream_count, .periodic = plan->mode == SP_MODE_PERIODIC};
  uint64_t parts = s->periodic ? plan->phase_count : 1;
  s->steps = steps_new(plan->slot_count + 1);
  s->parts = calloc(parts, sizeof *s->parts);
  s->grams = calloc(plan->slot_count + 1, sizeof *s->grams);
  int ok = s->steps != NULL && s->parts != NULL && s->grams != NULL;
  if (ok && !s->periodic)
    add_part(s, plan, 0, plan->slot_count, 1);
  for (uint64_t i = 0; ok && s->periodic && i < parts; i++) {
    sp_phase p = sp_plan_phase(plan, i);
    add_part(s, plan, p.first_slot, p.first_slot + p.slots, p.occurrences);
  }
  if (ok && s->periodic)
    ok = follow(s, plan) && find_shared(s, plan);
  if (!ok) {
    sp_sequence_drop(s);
    return 0;
  }
  add_grams(s);
  set_stops(s);
  sp_sequence_loosen(s);
  return 1;
}

void sp_sequence_drop(sp_sequence *s) {
  free(s->steps);
  free(s->parts);
  free(s->grams);
}

uint64_t sp_sequence_part(const sp_sequence *s, uint64_t at) {
  uint64_t p = 0;
  while (p + 1 < s->part_count && at >= s->parts[p].end)
    p++;
  return p;
}

uint64_t sp_sequence_next(const sp_sequence *s, uint64_t at, uint64_t *part) {
  if (at + 1 < s->parts[*part].end)
    return at + 1;
  if (!s->periodic)
    return SP_NOWHERE;
  uint64_t next = s->parts[*part].follower;
  *part = sp_sequence_part(s, next);
  return next;
}

uint64_t sp_sequence_grams(const sp_sequence *s, uint64_t hash, uint64_t from) {
  uint64_t low = 0, high = s->gram_count;
  while (low < high) {
    uint64_t mid = low + (high - low) / 2;
    const sp_gram *g = &s->grams[mid];
    if (g->hash < hash || (g->hash == hash && g->at < from))
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

/* Bytes: smaller requests are no evidence of a ratio, as they are rounded, or constants. 1/N: so
 * near is a ratio the same. */
enum { RATIO_LEAST = 512, RATIO_NEAR = 64 };

/* Scales agree if they differ by at most this: 1/64 of the distance between the smallest and the largest, which is
 * more than the rounding of sizes makes it differ. With 1/128 blocks that are rounded up to half a MiB, of 13 to 33 MB,
 * were held off plan in every layer. */
enum { SCALE_NEAR = SP_SCALE_ONE / 64 };

/* The largest scale, in distances between the smallest and the largest: it
 * keeps the product with SP_SCALE_ONE far below 2^63. */
enum { SCALE_MOST = 1 << 20 };

int sp_step_fits(const sp_step *s, uint64_t requested) {
  return requested >= s->least && (requested <= s->most || (s->roomy && requested <= s->size));
}

int sp_step_may_fit(const sp_step *s, uint64_t requested) {
  return s->varies && requested >= (s->least >> s->below) / VARIES && (requested >> s->above) / VARIES <= s->most;
}

uint64_t sp_step_ratio(const sp_step *s, uint64_t requested) {
  if (s->stays || s->varies || s->most < RATIO_LEAST || requested < s->most / VARIES || requested / VARIES > s->most)
    return 0;
  return (uint64_t)((double)requested / (double)s->most * SP_SCALE_ONE + 0.5);
}

static int ratios_agree(uint64_t a, uint64_t b) { return (a > b ? a - b : b - a) <= b / RATIO_NEAR; }

int sp_step_in_ratio(const sp_step *s, uint64_t ratio, uint64_t requested) {
  uint64_t of = ratio == 0 ? 0 : sp_step_ratio(s, requested);
  return of != 0 && (ratios_agree(of, ratio) || ratios_agree(of, ratio * ratio / SP_SCALE_ONE));
}

int64_t sp_step_scale(const sp_step *s, uint64_t requested) {
  if (s->least == s->most)
    return SP_NO_SCALE;
  double scale = ((double)requested - (double)s->least) / (double)(s->most - s->least);
  return (int64_t)((scale > SCALE_MOST ? SCALE_MOST : scale < -SCALE_MOST ? -SCALE_MOST : scale) * SP_SCALE_ONE);
}

int sp_scales_agree(int64_t a, int64_t b) {
  return a == SP_NO_SCALE || b == SP_NO_SCALE || (a - b <= SCALE_NEAR && b - a <= SCALE_NEAR);
}
