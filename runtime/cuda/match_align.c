#include "match_align.h"

#include <stdlib.h>
#include <string.h>

#include "sizes.h"

/* Steps at which the run may be. It bounds the time of a request. */
enum { CELLS = 1024 };

/* Costs have no unit; only their ratios matter. What other values do is in docs/runtime.md ("Sizes that data decide").
 * An alignment pays for each request that is no step, and for each step that has no request: little if not every recorded pass had it, and not much if data decide its size, as another expert may have no
 * tokens. For two of the least unlikely kind, a request is a step of another size rather than that both are left over. */
enum { EXTRA = 14, OMITTED = 12, OMITTED_DECIDED = 3, OMITTED_OPTIONAL = 1 };

/* What a request of a size costs that data decide: NEW at most, for the first of an expert. The other buffers of the expert
 * are in the same ratio to what was recorded, and cost PER_OCTAVE for each doubling by which they are not. So its steps
 * come together, and which expert of the plan it is matters to nobody: they share places. */
enum { NEW = 8, PER_OCTAVE = 64 };

/* Another size than was recorded, for a step whose size did not vary. Leaving both over costs less in a body. In a
 * prologue, which was recorded once, it may be decided by data. */
enum { OTHER = 30, OTHER_IN_PROLOGUE = 12 };

/* What costs this much more than the best alignment is forgotten. */
enum { BEAM = 160 };

/* Of the last 64 requests, so few are steps if the run is elsewhere. */
enum { LOST = 8 };

/* The unit of logarithms of base 2. */
enum { OCTAVE = 64 };

/* No ratio. */
enum { NONE = INT16_MIN };

/* More than any alignment costs, and far from overflowing. */
enum { NEVER = 1 << 28 };

/* cell is a place at which the run may be: what comes up to a step is done. */
typedef struct {
  uint64_t at; /* the step; SP_NOWHERE before the first one of a part */
  uint32_t part;
  int32_t cost;    /* above that of the best cell */
  int16_t ratio;   /* of the last request whose size data decide to what was recorded, as a logarithm; NONE if there was none */
  uint8_t matched; /* the last request is this step */
} cell;

struct sp_align {
  const sp_sequence *plan;
  int16_t *recorded; /* of each step: the logarithm of the most bytes requested there */
  uint64_t steps;    /* a bit for each of the last requests: whether it was a step */
  int count;
  cell cells[CELLS]; /* in the order of the plan */
};

/* logarithm is that of a number, in OCTAVEs. Between powers of two log2(1 + x) is taken to be x and a parabola, which is off by
 * 0.04 octaves at most. */
static int logarithm(uint64_t n) {
  int k = 63 - __builtin_clzll(n | 1);
  int x = (int)(k >= 6 ? (n >> (k - 6)) - OCTAVE : (n << (6 - k)) - OCTAVE);
  return n == 0 ? 0 : k * OCTAVE + x + 22 * x * (OCTAVE - x) / (OCTAVE * OCTAVE);
}

sp_align *sp_align_new(const sp_sequence *plan) {
  sp_align *a = calloc(1, sizeof *a);
  if (a == NULL)
    return NULL;
  a->plan = plan;
  a->recorded = malloc((plan->count + 1) * sizeof *a->recorded);
  if (a->recorded == NULL) {
    free(a);
    return NULL;
  }
  for (uint64_t i = 0; i < plan->count; i++)
    a->recorded[i] = (int16_t)logarithm(plan->steps[i].most);
  sp_align_begin(a, 0, sp_sequence_part(plan, 0)); /* a prologue may have no steps */
  return a;
}

void sp_align_free(sp_align *a) {
  if (a == NULL)
    return;
  free(a->recorded);
  free(a);
}

void sp_align_begin(sp_align *a, uint64_t at, uint64_t part) {
  a->count = 1;
  a->steps = UINT64_MAX;
  a->cells[0] = (cell){.at = at == a->plan->parts[part].first ? SP_NOWHERE : at - 1, .part = (uint32_t)part, .ratio = NONE};
}

int sp_align_lost(const sp_align *a) { return __builtin_popcountll(a->steps) < LOST; }

static int decided(const sp_step *s) { return s->shared || s->varies || s->roomy; }

/* omitted is the cost of a step without a request. */
static int omitted(const sp_step *s) { return s->optional ? OMITTED_OPTIONAL : decided(s) ? OMITTED_DECIDED : OMITTED; }

/* reach adds the steps ahead that the run may be at. */
static void reach(sp_align *a) {
  while (a->count < CELLS) {
    const cell *last = &a->cells[a->count - 1];
    uint64_t part = last->part, at = last->at == SP_NOWHERE ? a->plan->parts[part].first : sp_sequence_next(a->plan, last->at, &part);
    int32_t cost = at == SP_NOWHERE ? NEVER : last->cost + omitted(&a->plan->steps[at]);
    if (cost > BEAM)
      return;
    a->cells[a->count++] = (cell){.at = at, .part = (uint32_t)part, .cost = cost, .ratio = last->ratio};
  }
}

/* as_step is the cost of a request as a step that comes after a cell. *ratio becomes that behind it. */
static int32_t as_step(const sp_align *a, const cell *before, uint64_t at, uint64_t requested, int log, int *ratio) {
  const sp_step *s = &a->plan->steps[at];
  *ratio = before->ratio;
  if (decided(s)) {
    *ratio = log - a->recorded[at];
    int off = before->ratio == NONE ? OCTAVE : abs(*ratio - before->ratio);
    return (int32_t)sp_least(NEW, (uint64_t)off * PER_OCTAVE / OCTAVE);
  }
  if (requested >= s->least && requested <= s->most)
    return 0;
  return at < a->plan->parts[0].end && !s->stays ? OTHER_IN_PROLOGUE : OTHER;
}

/* advance finds the costs of all cells with one more request, and the best of them. */
static int advance(sp_align *a, uint64_t requested, const uint8_t *on_stream) {
  cell before = {.cost = NEVER}, left = before; /* of the cell on the left: without the request, and with it */
  int best = 0, log = logarithm(requested);
  for (int i = 0; i < a->count; i++) {
    cell *c = &a->cells[i], was = *c;
    c->cost = was.cost + EXTRA;
    c->matched = 0;
    if (i > 0) {
      const sp_step *s = &a->plan->steps[was.at];
      if (left.cost + omitted(s) < c->cost) {
        c->cost = left.cost + omitted(s);
        c->ratio = left.ratio;
      }
      int ratio = NONE;
      int32_t cost = on_stream[s->stream] ? before.cost + as_step(a, &before, was.at, requested, log, &ratio) : NEVER;
      if (cost <= c->cost) {
        c->cost = cost;
        c->ratio = (int16_t)ratio;
        c->matched = 1;
      }
    }
    if (c->cost < a->cells[best].cost)
      best = i;
    before = was;
    left = *c;
  }
  return best;
}

/* narrow forgets the cells at either end that cost too much. */
static void narrow(sp_align *a, int32_t best) {
  int from = 0;
  while (a->cells[from].cost > best + BEAM)
    from++;
  while (a->cells[a->count - 1].cost > best + BEAM)
    a->count--;
  a->count -= from;
  memmove(a->cells, a->cells + from, (size_t)a->count * sizeof *a->cells);
  for (int i = 0; i < a->count; i++)
    a->cells[i].cost -= best;
}

uint64_t sp_align_next(sp_align *a, uint64_t requested, const uint8_t *on_stream, uint64_t *part) {
  reach(a);
  cell found = a->cells[advance(a, requested, on_stream)];
  narrow(a, found.cost);
  a->steps = a->steps << 1 | found.matched;
  *part = found.part;
  return found.matched ? found.at : SP_NOWHERE;
}
