#include "match_kin.h"

#include <stdlib.h>

/* Steps. Lifetimes up to this have to be equal, longer ones within a quarter of the longer:
 * a few steps that one of the two lacks change those. */
enum { EXACT = 12 };

/* Steps of both stretches together that may be left out at a time: a first iteration makes
 * the optimizer's state, an evaluation comes in between. It bounds the time, which grows with
 * its square. */
enum { SKIPPED = 64 };

/* Steps in a row that have to be alike after some were left out. */
enum { AGAIN = 8 };

/* Times for each step of a plan that it is tried to leave some out; a try compares AGAIN steps at
 * most. Plans of recordings take up to 4.4. Beyond that nothing is left out any more, so that a
 * plan whose steps are hardly ever alike opens in time in proportion to its steps. */
enum { TRIES = 64 };

/* Sizes of kin are within this factor: they follow lengths. */
enum { FACTOR = 64 };

/* stretch is some steps, in their order or against it. What is never freed is left out: the
 * first iteration makes the optimizer's state, and no other one does. */
typedef struct {
  const sp_step *steps;
  const uint32_t *list; /* of all steps that are freed */
  const uint32_t *rank; /* of each step: how many of the list come before it */
  uint64_t from, count; /* in the list */
  uint64_t *tries;      /* that are left (sp_kin) */
  int backward;
} stretch;

static uint64_t number(const stretch *a, uint64_t i) { return a->list[a->backward ? a->from - i : a->from + i]; }

static int lives_alike(uint64_t a, uint64_t b) {
  if (a <= EXACT || b <= EXACT)
    return a == b;
  uint64_t longer = a > b ? a : b, shorter = a > b ? b : a;
  return longer - shorter <= longer / 4;
}

/* alike says whether two steps may be kin. */
static int alike(const stretch *a, uint64_t i, const stretch *b, uint64_t j) {
  uint64_t x = number(a, i), y = number(b, j);
  const sp_step *s = &a->steps[x], *t = &b->steps[y];
  if (s->stream != t->stream || s->placed != t->placed || (s->end == SP_NOWHERE) != (t->end == SP_NOWHERE))
    return 0;
  if (s->most / FACTOR > t->most || t->most / FACTOR > s->most)
    return 0;
  return s->end == SP_NOWHERE || lives_alike(a->rank[s->end] - a->rank[x], a->rank[t->end] - a->rank[y]);
}

/* row says whether AGAIN steps in a row are alike, or all up to an end. */
static int row(const stretch *a, uint64_t i, const stretch *b, uint64_t j) {
  for (int k = 0; k < AGAIN && i < a->count && j < b->count; k++, i++, j++)
    if (!alike(a, i, b, j))
      return 0;
  return 1;
}

/* skip leaves out as few steps as possible. 0 if SKIPPED are not enough. */
static int skip(const stretch *a, uint64_t *i, const stretch *b, uint64_t *j) {
  for (uint64_t n = 1; n <= SKIPPED; n++)
    for (uint64_t k = 0; k <= n; k++) {
      if (*a->tries == 0)
        return 0;
      --*a->tries;
      if (*i + k < a->count && *j + n - k < b->count && row(a, *i + k, b, *j + n - k)) {
        *i += k;
        *j += n - k;
        return 1;
      }
    }
  return 0;
}

static uint32_t root(uint32_t *kin, uint64_t step) {
  while (kin[step] != step)
    step = kin[step] = kin[kin[step]];
  return (uint32_t)step;
}

static void join(uint32_t *kin, uint64_t x, uint64_t y) {
  uint32_t a = root(kin, x), b = root(kin, y);
  if (a < b)
    kin[b] = a;
  else
    kin[a] = b;
}

/* walk goes through two stretches, and returns how many steps are alike. It makes them kin
 * unless `kin` is NULL. *left is how many steps of the first are not reached. */
static uint64_t walk(const stretch *a, const stretch *b, uint32_t *kin, uint32_t *twin, uint64_t *left) {
  uint64_t i = 0, j = 0, found = 0;
  while (i < a->count && j < b->count) {
    if (!alike(a, i, b, j)) {
      if (!skip(a, &i, b, &j))
        break;
      continue;
    }
    if (kin != NULL)
      join(kin, number(a, i), number(b, j));
    if (twin != NULL)
      twin[number(a, i)] = (uint32_t)number(b, j);
    found++;
    i++;
    j++;
  }
  *left = a->count - i;
  return found;
}

/* mostly says whether `found` of a number of steps are most of them: three quarters. */
static int mostly(uint64_t found, uint64_t of) { return found >= of - of / 4 && found > 0; }

/* join_back makes kin of a part's steps and the first body's, from the ends backwards, as
 * often as the body is found. Each has the steps [first, end) of the list. */
static void join_back(const stretch *part, const stretch *body, sp_kin *k) {
  uint64_t left = part->count, before = left + 1, ignored;
  while (left > 0 && left < before) {
    stretch a = *part;
    a.from -= part->count - left;
    a.count = left;
    before = left;
    uint64_t found = walk(&a, body, NULL, NULL, &left);
    if (!mostly(found, body->count < a.count ? body->count : a.count))
      return;
    walk(&a, body, k->first, k->twin, &ignored);
  }
}

/* find is the place in a kin's list of the first step from `step` on. */
static uint64_t find(const sp_kin *k, uint64_t step) {
  uint64_t low = 0, high = k->count;
  while (low < high) {
    uint64_t mid = low + (high - low) / 2;
    if (k->list[mid] < step)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static stretch stretch_of(sp_kin *k, uint64_t first, uint64_t end, int backward) {
  uint64_t from = find(k, first), to = find(k, end);
  return (stretch){k->plan->steps, k->list, k->rank, backward && to > from ? to - 1 : from, to - from, &k->tries, backward};
}

int sp_kin_make(sp_kin *k, const sp_sequence *s) {
  *k = (sp_kin){.plan = s, .tries = s->count * TRIES};
  if (s->count >= UINT32_MAX)
    return 0;
  k->first = calloc(s->count + 1, sizeof *k->first);
  k->twin = calloc(s->count + 1, sizeof *k->twin);
  k->rank = calloc(s->count + 1, sizeof *k->rank);
  k->list = calloc(s->count + 1, sizeof *k->list);
  if (k->first == NULL || k->twin == NULL || k->rank == NULL || k->list == NULL) {
    sp_kin_drop(k);
    return 0;
  }
  for (uint64_t i = 0; i < s->count; i++) {
    k->first[i] = k->twin[i] = (uint32_t)i;
    k->rank[i] = (uint32_t)k->count;
    if (!s->steps[i].stays)
      k->list[k->count++] = (uint32_t)i;
  }
  k->rank[s->count] = (uint32_t)k->count;
  for (uint64_t p = 0; p < s->part_count && s->part_count > 1; p++) {
    stretch part = stretch_of(k, s->parts[p].first, s->parts[p].end, 1), body = stretch_of(k, s->parts[1].first, s->parts[1].end, 1);
    if (p != 1)
      join_back(&part, &body, k);
  }
  return 1;
}

void sp_kin_drop(sp_kin *k) {
  free(k->first);
  free(k->twin);
  free(k->rank);
  free(k->list);
}

uint32_t sp_kin_of(sp_kin *k, uint64_t step) { return root(k->first, step); }

int sp_kin_join(sp_kin *k, uint64_t first, uint64_t end, uint64_t other, uint64_t other_end) {
  stretch a = stretch_of(k, first, end, 0), b = stretch_of(k, other, other_end, 0);
  uint64_t left, least = a.count < b.count ? a.count : b.count;
  if (!mostly(walk(&a, &b, NULL, NULL, &left), least))
    return 0;
  walk(&a, &b, k->first, NULL, &left);
  return 1;
}

uint64_t sp_kin_alike(sp_kin *k, uint64_t step, uint64_t other, uint64_t most) {
  stretch a = stretch_of(k, step, k->plan->count, 0), b = stretch_of(k, other, k->plan->count, 0);
  uint64_t n = 0;
  while (n < most && n < a.count && n < b.count && k->tries > 0 && alike(&a, n, &b, n)) {
    k->tries--;
    n++;
  }
  return n;
}
