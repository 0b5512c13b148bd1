#include "match_loops.h"

#include <stdlib.h>
#include <string.h>

#include "sizes.h"

/* Steps of the shortest round: in shorter ones steps are alike by chance. */
enum { ROUND_LEAST = 4 };

/* Steps in a row that are looked up together. */
enum { GRAM = 8 };

/* Steps in a row that may differ from those of the round before, between GRAM that do not. Some that live into the next round live to another step if
 * that is one that some pass lacks. Without this, the experts that have tokens in every pass are no rounds of their layer's loop: a run in which
 * more and more experts had none had 81 % of its bytes on plan, and 92 % with it. With 6, first requests of layers are taken for others. */
enum { ODD = 3 };

/* Steps up to which a lifetime tells lines of the program apart. A buffer that lives longer may live any time, as there are more or fewer
 * rounds in between. */
enum { LIFE = 24 };

/* An odd number, whose bits are mixed well (Steele and others, Fast splittable pseudorandom number generators, 2014). */
#define MIX UINT64_C(0x9e3779b97f4a7c15)

/* life is how many requests a step lives, LIFE + 1 for all that live longer. Steps that not every pass has do not count for one that every pass has:
 * they are rounds that some pass lacks, and do not fall into its lifetime in any. before counts the steps before each that are not optional. */
static uint64_t life(const sp_sequence *s, const uint64_t *before, uint64_t at) {
  const sp_step *step = &s->steps[at];
  if (step->end == SP_NOWHERE)
    return LIFE + 1;
  return sp_least(LIFE + 1, step->optional ? step->end - at : before[step->end] - before[at]);
}

uint64_t *sp_loop_keys(const sp_sequence *s) {
  uint64_t *keys = malloc((s->count + 1) * sizeof *keys), *before = calloc(s->count + 1, sizeof *before);
  if (keys == NULL || before == NULL) {
    free(keys);
    free(before);
    return NULL;
  }
  for (uint64_t i = 0; i < s->count; i++)
    before[i + 1] = before[i] + !s->steps[i].optional;
  for (uint64_t i = 0; i < s->count; i++)
    keys[i] = (s->steps[i].stream * (uint64_t)(LIFE + 2) + life(s, before, i) + 1) * MIX;
  free(before);
  return keys;
}

/* place is a step, and the hash of the gram that begins there. */
typedef struct {
  uint64_t hash, at;
} place;

typedef struct {
  const sp_sequence *plan;
  const uint64_t *keys;
  uint64_t *grams;  /* of each step: the hash of the gram that begins there */
  uint64_t *before; /* of each step: the last one before it that begins the same gram; SP_NOWHERE if there is none */
  uint8_t *taken;   /* of each step: whether it is in a loop */
  uint64_t *rounds; /* what rounds of bodies may begin with (round_of), ascending */
  uint64_t round_count;
  place *places;
  sp_loop *found;
  uint64_t count;
} finder;

static int by_hash(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->hash != y->hash)
    return x->hash < y->hash ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

static void look_up(finder *f, const sp_part *p) {
  uint64_t n = 0;
  for (uint64_t i = p->first; i < p->end; i++)
    f->before[i] = SP_NOWHERE;
  for (uint64_t i = p->first; i + GRAM <= p->end; i++) {
    uint64_t hash = 0;
    for (uint64_t k = 0; k < GRAM; k++) {
      hash = (hash ^ f->keys[i + k]) * MIX;
      hash ^= hash >> 29;
    }
    f->grams[i] = hash;
    f->places[n++] = (place){hash, i};
  }
  qsort(f->places, n, sizeof *f->places, by_hash);
  for (uint64_t k = 1; k < n; k++)
    if (f->places[k].hash == f->places[k - 1].hash)
      f->before[f->places[k].at] = f->places[k - 1].at;
}

/* repeats says whether `steps` steps from `at` on, of a part, are those a period later. */
static int repeats(const finder *f, const sp_part *p, uint64_t at, uint64_t steps, uint64_t period) {
  return at >= p->first && at + period + steps <= p->end && memcmp(f->keys + at, f->keys + at + period, steps * sizeof *f->keys) == 0;
}

/* repeats_but_odd says whether the step at `at` is the one a period later, or up to ODD from it on differ, behind which GRAM steps repeat. */
static int repeats_but_odd(const finder *f, const sp_part *p, uint64_t at, uint64_t period) {
  int is = repeats(f, p, at, 1, period);
  for (uint64_t k = 1; !is && k <= ODD; k++)
    is = repeats(f, p, at + k, GRAM, period);
  return is;
}

/* repeated_but_odd is the same for the step before `at`, and those before that. */
static int repeated_but_odd(const finder *f, const sp_part *p, uint64_t at, uint64_t period) {
  int is = at > p->first && repeats(f, p, at - 1, 1, period);
  for (uint64_t k = 1; !is && k <= ODD && at - p->first >= GRAM + k; k++)
    is = repeats(f, p, at - GRAM - k, GRAM, period);
  return is;
}

/* add notes the stretch around `at` that repeats every `period` steps, if it does so at least once. The answer is its end. */
static uint64_t add(finder *f, const sp_part *p, uint64_t at, uint64_t period) {
  uint64_t last = at; /* the stretch is [at, last) and a period more */
  while (repeats_but_odd(f, p, last, period))
    last++;
  while (repeated_but_odd(f, p, at, period))
    at--;
  uint64_t end = last + period;
  if (end - at >= 2 * period)
    f->found[f->count++] = (sp_loop){at, end, period};
  return end;
}

/* find notes all stretches of a part that repeat. There are fewer of them than steps, as the ends of those of one period differ. */
static void find(finder *f, const sp_part *p) {
  uint64_t looked[SP_ROUND_MOST + 1] = {0}; /* by period: up to which step it was looked for */
  look_up(f, p);
  for (uint64_t i = p->first; i < p->end; i++) {
    uint64_t period = f->before[i] == SP_NOWHERE ? 0 : i - f->before[i];
    if (period >= ROUND_LEAST && period <= SP_ROUND_MOST && i >= looked[period])
      looked[period] = add(f, p, f->before[i], period);
  }
}

/* The longest first, then the one of the shortest rounds. */
static int by_length(const void *a, const void *b) {
  const sp_loop *x = a, *y = b;
  uint64_t n = x->end - x->first, m = y->end - y->first;
  if (n != m)
    return n > m ? -1 : 1;
  if (x->period != y->period)
    return x->period < y->period ? -1 : 1;
  return (x->first > y->first) - (x->first < y->first);
}

static int by_place(const void *a, const void *b) {
  const sp_loop *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

int sp_by_number(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* in_prologue says whether a loop is in the prologue, which was recorded once. */
static int in_prologue(const finder *f, const sp_loop *l) { return l->first < f->plan->parts[0].end; }

/* lacks says whether some pass lacks a round of a loop of a body. */
static int lacks(const finder *f, const sp_loop *l) {
  uint64_t row = 0;
  for (uint64_t i = l->first; i < l->end && row < l->period; i++)
    row = f->plan->steps[i].optional ? row + 1 : 0;
  return row == l->period;
}

/* round_of is what a round of a loop begins with, if it begins at a step. */
static uint64_t round_of(const finder *f, const sp_loop *l, uint64_t at) { return f->grams[at] ^ l->period; }

/* note_rounds notes the rounds of the loops of bodies, from wherever they may begin. */
static void note_rounds(finder *f) {
  for (uint64_t k = 0; k < f->count; k++) {
    const sp_loop *l = &f->found[k];
    if (in_prologue(f, l) || !lacks(f, l))
      continue;
    for (uint64_t i = l->first; i < l->first + l->period && f->round_count < f->plan->count; i++)
      f->rounds[f->round_count++] = round_of(f, l, i);
  }
  qsort(f->rounds, f->round_count, sizeof *f->rounds, sp_by_number);
}

/* varies says whether a loop may have any number of rounds. In the prologue it is one whose rounds are those of a loop of a body. */
static int varies(const finder *f, const sp_loop *l) {
  uint64_t round = round_of(f, l, l->first);
  return in_prologue(f, l) ? bsearch(&round, f->rounds, f->round_count, sizeof round, sp_by_number) != NULL : lacks(f, l);
}

/* keep takes a loop, without what is in a longer one. */
static int keep(finder *f, sp_loop *l) {
  while (l->first < l->end && f->taken[l->first])
    l->first++;
  while (l->first < l->end && f->taken[l->end - 1])
    l->end--;
  if (l->end - l->first < 2 * l->period || memchr(f->taken + l->first, 1, l->end - l->first) != NULL || !varies(f, l))
    return 0;
  memset(f->taken + l->first, 1, l->end - l->first);
  return 1;
}

static void choose(finder *f) {
  uint64_t kept = 0;
  note_rounds(f);
  qsort(f->found, f->count, sizeof *f->found, by_length);
  for (uint64_t k = 0; k < f->count; k++) {
    sp_loop l = f->found[k];
    if (varies(f, &l) && keep(f, &l))
      f->found[kept++] = l;
  }
  f->count = kept;
  qsort(f->found, kept, sizeof *f->found, by_place);
}

int sp_loops_find(const sp_sequence *s, const uint64_t *keys, sp_loop **loops, uint64_t *count) {
  uint64_t n = s->count + 1;
  finder f = {.plan = s, .keys = keys, .grams = calloc(n, sizeof *f.grams), .before = malloc(n * sizeof *f.before), .taken = calloc(n, 1),
              .rounds = malloc(n * sizeof *f.rounds), .places = malloc(n * sizeof *f.places), .found = malloc(n * sizeof *f.found)};
  int ok = f.grams != NULL && f.before != NULL && f.taken != NULL && f.rounds != NULL && f.places != NULL && f.found != NULL;
  for (uint64_t p = 0; ok && p < s->part_count; p++)
    find(&f, &s->parts[p]);
  if (ok)
    choose(&f);
  free(f.grams);
  free(f.before);
  free(f.taken);
  free(f.rounds);
  free(f.places);
  if (!ok) {
    free(f.found);
    f.found = NULL;
  }
  *loops = f.found;
  *count = f.count;
  return ok;
}
