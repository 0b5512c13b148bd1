#include "match_laws.h"

#include <stdlib.h>
#include <string.h>

#include "match_kin.h"
#include "sizes.h"

/* A part is cut where at most 1/LITTLE of the most bytes that vary and are live in it cross, if
 * 1/MUCH of them are live before and behind the cut: the inputs of a batch live longer than what
 * is computed from it. If only 1/SOME is live on one side, or less but that side has most of the part's steps, at most 1/LITTLE of
 * that may cross: what a generation keeps is little beside what is trained behind it, and follows another length. With
 * 8, 32 and 128 for SOME the plans of 30 recordings serve the same. A segment has at least 1/SHORT of the part's steps, or of the
 * bytes that they request: micro-batches do, layers do not, and what is trained behind a long generation has few steps.
 * What crosses a cut gets a place of its own, so cuts that are not needed cost. */
enum { LITTLE = 16, MUCH = 2, SOME = 4, SHORT = 32 };

/* Steps. A row of fewer than ALIKE_LEAST that is alike does not count, since any two layers have one. A row is
 * followed for ALIKE at most, which bounds the time. */
enum { ALIKE_LEAST = 64, ALIKE = 1024 };

/* Kinds of segments that a segment is compared with. It bounds the time. */
enum { KINDS = 8 };

/* 1/N of a size: a request this near to what a law says may be the step's. What lies far beyond
 * the recorded sizes is off by less; other steps are off by more. */
enum { NEAR = 16 };

/* 1/N of a size: what shapes that are rounded up make a size differ by, at most. */
enum { ROUNDED = 64 };

/* A law may say 1/BEYOND too little for a key that lies as far beyond the points as these are apart. */
enum { BEYOND = 256 };

/* 1/N of a size: a law that says this much too much is right enough; too little never is. */
enum { TOO_MUCH = 256 };

/* Requests after which what laws said before counts half, the fewest that show anything, and the
 * per cent of the bytes that have to be as the laws say. */
enum { RECENT = 4096, SHOWN = 128, HOLD = 90 };

/* Requests that follow laws, behind a key. If fewer have come when the run leaves the sequence, what the key has read is not
 * confirmed. Of an evaluation that the plan does not know, one to three fit the steps of a training step. */
enum { CONFIRMED = 8 };

/* Per cent of the bytes of laws with three points whose point between is where the outer two have
 * it. Below that the recording itself shows that no one quantity decides. */
enum { LIKELY = 75 };

/* A law says no size above this many times the largest that was seen. */
enum { WILD = 16 };

/* Times that a law of three points may be wrong before the largest size seen counts. */
enum { MISSES = 3 };

/* range is the least and the most bytes that steps which are kin request. */
typedef struct {
  uint64_t least, most;
} range;

/* doublings is how often a size has to be doubled until it is about another one, which may be
 * anything. */
static uint8_t doublings(uint64_t size, uint64_t other) {
  uint8_t n = 0;
  while (n < 63 && size < other >> n)
    n++;
  return n;
}

/* widen marks the steps whose kin varies, and by how much. 0 without host memory. */
static int widen(sp_sequence *s, sp_kin *kin) {
  range *r = calloc(s->count + 1, sizeof *r);
  if (r == NULL)
    return 0;
  for (uint64_t i = 0; i < s->count; i++) {
    range *of = &r[sp_kin_of(kin, i)];
    const sp_step *step = &s->steps[i];
    if (of->most == 0 || step->least < of->least)
      of->least = step->least;
    if (step->most > of->most)
      of->most = step->most;
  }
  for (uint64_t i = 0; i < s->count; i++) {
    const range *of = &r[sp_kin_of(kin, i)];
    sp_step *step = &s->steps[i];
    step->varies = of->least < of->most;
    step->below = doublings(of->least, step->least);
    step->above = doublings(step->most, of->most);
  }
  free(r);
  return 1;
}

/* is_key says whether a step may be a key. */
static int is_key(const sp_step *step) {
  return step->varies && step->placed && step->end != SP_NOWHERE && step->most > SP_KEY_LEAST;
}

/* cutting is a part that is being cut: the bytes of keys that are live at each step, and the
 * most of them. */
typedef struct {
  sp_laws *l;
  const sp_sequence *s;
  const uint64_t *live;
  uint64_t *behind; /* scratch: the most that is live from a step on */
  uint64_t *sum;    /* bytes that the steps before each one request, modulo 2^64 */
  uint64_t peak;
  uint64_t steps;              /* of the part */
  uint64_t least, least_bytes; /* steps of a segment, and bytes that they request */
  sp_kin *kin;
} cutting;

/* many says whether steps are enough for a segment by their number, and large by their bytes. */
static int many(const cutting *c, uint64_t first, uint64_t end) { return end >= first + c->least; }

static int large(const cutting *c, uint64_t first, uint64_t end) { return end > first && c->sum[end] - c->sum[first] >= c->least_bytes; }

/* shares is the divisor of the bytes of the lesser side that may cross a cut: 0 if either is too small for
 * a segment. Where one is only by its bytes, next to nothing crosses: with LITTLE, GRPO's backward pass was cut in two by
 * its last layers, and moved three times as much. */
static uint64_t shares(const cutting *c, uint64_t first, uint64_t at, uint64_t end) {
  int by_steps = many(c, first, at) && many(c, at, end);
  int by_bytes = (many(c, first, at) || large(c, first, at)) && (many(c, at, end) || large(c, at, end));
  return by_steps ? LITTLE : by_bytes ? LITTLE * LITTLE : 0;
}

/* add_live finds the bytes of keys that are live at each step of a part, and returns the most. */
static uint64_t add_live(uint64_t *live, const sp_sequence *s, const sp_part *part) {
  uint64_t sum = 0, peak = 0; /* modulo 2^64, as what is live is never less than 0 */
  for (uint64_t i = part->first; i < part->end; i++)
    if (is_key(&s->steps[i])) {
      live[i] += s->steps[i].most;
      if (s->steps[i].end < part->end)
        live[s->steps[i].end] -= s->steps[i].most;
    }
  for (uint64_t i = part->first; i < part->end; i++) {
    live[i] = sum += live[i];
    peak = sum > peak ? sum : peak;
  }
  return peak;
}

/* best_cut is the key of [first, end) that the fewest bytes cross, SP_NOWHERE if too many do. Of
 * equal ones it is that from which on the most steps are as those from the first one on: a micro-batch may begin with
 * small inputs that another model encodes. Of equal ones again it is the last: the blocks before it are what is left
 * of the segment before. */
static uint64_t best_cut(const cutting *c, uint64_t first, uint64_t end) {
  uint64_t best = SP_NOWHERE, most = 0, before = 0;
  uint64_t fewest = c->peak / LITTLE;
  for (uint64_t i = end, behind = 0; i-- > first;)
    c->behind[i] = behind = behind > c->live[i] ? behind : c->live[i];
  for (uint64_t i = first; i < end; i++) {
    uint64_t crossing = c->live[i] - c->s->steps[i].most, less = sp_least(before, c->behind[i]);
    int most_steps = 2 * (less == before ? i - first : end - i) > c->steps;
    before = before > c->live[i] ? before : c->live[i];
    if (!is_key(&c->s->steps[i]) || crossing > fewest)
      continue;
    uint64_t share = shares(c, first, i, end);
    int much = less >= c->peak / MUCH && share == LITTLE, some = less >= c->peak / SOME || most_steps;
    if (share == 0 || (!much && (!some || crossing > less / share)))
      continue;
    uint64_t again = sp_kin_alike(c->kin, first, i, ALIKE);
    again = again < ALIKE_LEAST ? 0 : again;
    if (crossing == fewest && again < most)
      continue;
    most = again;
    fewest = crossing;
    best = i;
  }
  return best;
}

/* cut_at cuts [first, end) into segments, which have at least `least` steps or `least_bytes`, so that it is called
 * 2 * SHORT deep at most. */
static void cut_at(const cutting *c, uint64_t first, uint64_t end) {
  uint64_t at = best_cut(c, first, end);
  if (at != SP_NOWHERE) {
    cut_at(c, first, at);
    cut_at(c, at, end);
    return;
  }
  for (uint64_t i = first; i < end; i++)
    c->l->segment_of[i] = (uint32_t)c->l->segment_count;
  c->l->segments[c->l->segment_count++] = (sp_segment){.first = first, .end = end, .key = is_key(&c->s->steps[first]) ? first : SP_NOWHERE};
}

/* cut_part cuts a part: what comes before its first key, and segments that begin with keys. */
static void cut_part(sp_laws *l, const sp_sequence *s, const sp_part *part, uint64_t *scratch, sp_kin *kin) {
  uint64_t key = part->first, *live = scratch, *behind = live + s->count + 1, *sum = behind + s->count + 1;
  cutting c = {l, s, live, behind, sum, add_live(live, s, part), part->end - part->first, (part->end - part->first) / SHORT + 1, 0, kin};
  for (uint64_t i = part->first; i < part->end; i++)
    sum[i + 1] = sum[i] + s->steps[i].most;
  c.least_bytes = (sum[part->end] - sum[part->first]) / SHORT + 1;
  if (c.peak > l->varying)
    l->varying = c.peak;
  while (key < part->end && !is_key(&s->steps[key]))
    key++;
  for (uint64_t i = part->first; i < key; i++)
    l->segment_of[i] = (uint32_t)l->segment_count;
  if (key > part->first)
    l->segments[l->segment_count++] = (sp_segment){.first = part->first, .end = key, .key = SP_NOWHERE};
  if (key < part->end)
    cut_at(&c, key, part->end);
}

/* like_first says whether a step is the key of a segment in the first body. */
static int like_first(const sp_laws *l, const sp_sequence *s, const sp_kin *kin, uint64_t at) {
  uint64_t twin = kin->twin[at];
  return twin != at && is_key(&s->steps[at]) && l->segments[l->segment_of[twin]].key == twin;
}

/* cut_like cuts a part where the first body is cut. What comes before that, as an evaluation before a step, is cut by
 * itself. 0 if no such place is found. */
static int cut_like(sp_laws *l, const sp_sequence *s, const sp_part *part, uint64_t *scratch, sp_kin *kin) {
  uint64_t at = part->first;
  while (at < part->end && !like_first(l, s, kin, at))
    at++;
  if (at == part->end)
    return 0;
  sp_part before = {.first = part->first, .end = at};
  if (at > part->first)
    cut_part(l, s, &before, scratch, kin);
  for (; at < part->end; at++) {
    if (like_first(l, s, kin, at))
      l->segments[l->segment_count++] = (sp_segment){.first = at, .key = at};
    l->segments[l->segment_count - 1].end = at + 1;
    l->segment_of[at] = (uint32_t)(l->segment_count - 1);
  }
  return 1;
}

/* cut makes the segments; there is room for as many as steps and parts. 0 without host memory. */
static int cut(sp_laws *l, const sp_sequence *s, sp_kin *kin) {
  uint64_t *scratch = calloc(3 * (s->count + 1), sizeof *scratch); /* of cut_part */
  if (scratch == NULL)
    return 0;
  l->segment_count = l->varying = 0;
  if (s->part_count > 1)
    cut_part(l, s, &s->parts[1], scratch, kin);
  for (uint64_t p = 0; p < s->part_count; p++)
    if (p != 1 && !cut_like(l, s, &s->parts[p], scratch, kin))
      cut_part(l, s, &s->parts[p], scratch, kin);
  free(scratch);
  return 1;
}

/* join_segments makes kin of segments that are alike. */
static void join_segments(const sp_laws *l, const sp_sequence *s, sp_kin *kin) {
  const sp_segment *kinds[KINDS];
  int count = 0;
  for (uint64_t g = 0; g < l->segment_count; g++) {
    const sp_segment *now = &l->segments[g];
    if (now->key == SP_NOWHERE || now->first < s->parts[s->part_count > 1].first)
      continue;
    int k = 0;
    while (k < count && !sp_kin_join(kin, now->first, now->end, kinds[k]->first, kinds[k]->end))
      k++;
    if (k == count && count < KINDS)
      kinds[count++] = now;
  }
}

static double apart(double a, double b) { return a > b ? a - b : b - a; }

/* add puts a point into a law, in the order of the keys. With three points it takes the place of
 * the nearest; of two with one key the larger size counts. */
static void add(sp_law *w, double key, double size) {
  int at = 0, nearest = 0;
  for (int i = 0; i < w->points; i++) {
    if (w->key[i] == key) {
      w->size[i] = size > w->size[i] ? size : w->size[i];
      return;
    }
    at += w->key[i] < key;
    if (apart(w->key[i], key) < apart(w->key[nearest], key))
      nearest = i;
  }
  if (w->points == 3) {
    w->key[nearest] = key;
    w->size[nearest] = size;
    return; /* it lies between the same neighbours, or beyond the last */
  }
  for (int i = w->points++; i > at; i--) {
    w->key[i] = w->key[i - 1];
    w->size[i] = w->size[i - 1];
  }
  w->key[at] = key;
  w->size[at] = size;
}

/* fill gives every varying step a law, one for all its kin, through the points of the plan: the
 * least size belongs to the least size of the key, the most to the most. Only segments with one
 * kind of key say something of one another. */
static int fill(sp_laws *l, const sp_sequence *s, sp_kin *kin) {
  uint32_t count = 0;
  for (uint64_t i = 0; i < s->count; i++) {
    uint32_t first = sp_kin_of(kin, i);
    if (s->steps[i].varies)
      l->law_of[i] = first == i ? count++ : l->law_of[first];
    else
      l->law_of[i] = SP_NO_LAW;
  }
  l->laws = calloc((size_t)count + 1, sizeof *l->laws);
  l->law_count = count;
  if (l->laws == NULL)
    return 0;
  for (uint64_t i = s->count; i-- > 0;) { /* bodies first: a prologue is one pass */
    sp_segment *g = sp_laws_segment(l, i);
    if (l->law_of[i] == SP_NO_LAW)
      continue;
    const sp_step *step = &s->steps[i];
    sp_law *w = &l->laws[l->law_of[i]];
    w->most = step->most > w->most ? step->most : w->most;
    if (g->key == SP_NOWHERE)
      continue;
    const sp_step *key = &s->steps[g->key];
    g->kind = sp_kin_of(kin, g->key);
    if (w->points == 0)
      w->kind = g->kind;
    if (w->kind != g->kind)
      continue;
    add(w, (double)key->least, (double)step->least);
    if (key->most > key->least)
      add(w, (double)key->most, (double)step->most);
  }
  return 1;
}

/* make_tallies makes a tally for each kind of key. 0 without host memory. */
static int make_tallies(sp_laws *l) {
  l->tallies = calloc(l->segment_count + 1, sizeof *l->tallies);
  for (uint64_t g = 0; g < l->segment_count; g++) {
    sp_segment *of = &l->segments[g];
    uint64_t first = 0;
    while (first < g && (of->key == SP_NOWHERE || l->segments[first].key == SP_NOWHERE || l->segments[first].kind != of->kind))
      first++;
    of->tally = first;
  }
  return l->tallies != NULL;
}

int sp_laws_make(sp_laws *l, sp_sequence *s) {
  *l = (sp_laws){0};
  sp_kin made, *kin = &made;
  int ok = sp_kin_make(kin, s);
  l->segments = calloc(s->count + s->part_count + 1, sizeof *l->segments);
  l->segment_of = calloc(s->count + 1, sizeof *l->segment_of);
  l->law_of = calloc(s->count + 1, sizeof *l->law_of);
  ok = ok && l->segments != NULL && l->segment_of != NULL && l->law_of != NULL && widen(s, kin);
  ok = ok && cut(l, s, kin);
  if (ok) {
    join_segments(l, s, kin);
    ok = widen(s, kin) && cut(l, s, kin) /* more varies now */ && fill(l, s, kin) && make_tallies(l);
  }
  l->twin = kin->twin;
  kin->twin = NULL;
  sp_kin_drop(kin);
  if (!ok)
    sp_laws_drop(l);
  return ok;
}

void sp_laws_drop(sp_laws *l) {
  free(l->segments);
  free(l->tallies);
  free(l->segment_of);
  free(l->laws);
  free(l->law_of);
  free(l->twin);
  *l = (sp_laws){0};
}

/* line is a straight line through two points, bow a parabola through these and 0: of sizes that
 * grow faster than in proportion, as where attention keeps the square of a length. */
static double line(double k, double k0, double s0, double k1, double s1) { return s0 + (k - k0) * (s1 - s0) / (k1 - k0); }

static double bow(double k, double k0, double s0, double k1, double s1) {
  double square = (s1 / k1 - s0 / k0) / (k1 - k0);
  return k * (s0 / k0 + square * (k - k0));
}

/* faster says whether sizes grow faster than in proportion. */
static int faster(double k0, double s0, double k1, double s1) { return k0 > 0 && s1 > s0 && s1 * k0 > s0 * k1; }

/* parabola goes through three points, by Newton's divided differences. */
static double parabola(const sp_law *w, double k) {
  double a = (w->size[1] - w->size[0]) / (w->key[1] - w->key[0]);
  double b = ((w->size[2] - w->size[1]) / (w->key[2] - w->key[1]) - a) / (w->key[2] - w->key[0]);
  return w->size[0] + (k - w->key[0]) * (a + (k - w->key[1]) * b);
}

/* doubt is what is added to the size for a key beyond the points: what lies between them is off
 * by `off` bytes. Sizes that follow a law to the byte get nothing. */
static double doubt(double k, double k0, double k1, double size, double off) {
  double beyond = k > k1 ? (k - k1) / (k1 - k0) : k < k0 ? (k0 - k) / (k1 - k0) : 0;
  double share = beyond / BEYOND < 1. / ROUNDED ? beyond / BEYOND : 1. / ROUNDED;
  return off < 1 ? 0 : off > share * size ? off : share * size;
}

/* by_two is what two points say, by_three what three do. If a line or a bow through the outer two
 * is near the one between, it is the nearer one of these: shapes are rounded up, and a parabola
 * through three points makes much of such a difference. */
static double by_two(const sp_law *w, double k) {
  double k0 = w->key[0], s0 = w->size[0], k1 = w->key[1], s1 = w->size[1];
  double size = faster(k0, s0, k1, s1) ? bow(k, k0, s0, k1, s1) : line(k, k0, s0, k1, s1);
  return size + (s1 * k0 == s0 * k1 ? 0 : doubt(k, k0, k1, size, 1));
}

/* nearest is the line or the bow through the outer two of three points, for a key. *off is how
 * many bytes it is off at the point between. */
static double nearest(const sp_law *w, double k, double *off) {
  double k0 = w->key[0], s0 = w->size[0], k2 = w->key[2], s2 = w->size[2];
  *off = apart(line(w->key[1], k0, s0, k2, s2), w->size[1]);
  double bowed = faster(k0, s0, k2, s2) ? apart(bow(w->key[1], k0, s0, k2, s2), w->size[1]) : *off;
  if (bowed >= *off)
    return line(k, k0, s0, k2, s2);
  *off = bowed;
  return bow(k, k0, s0, k2, s2);
}

static double by_three(const sp_law *w, double k) {
  double off, size = nearest(w, k, &off);
  return off <= w->size[1] / ROUNDED ? size + doubt(k, w->key[0], w->key[2], size, off) : parabola(w, k);
}

int sp_laws_likely(const sp_laws *l) {
  double all = 0, right = 0, off;
  for (uint32_t i = 0; i < l->law_count; i++) {
    const sp_law *w = &l->laws[i];
    if (w->points < 3)
      continue;
    nearest(w, 0, &off);
    all += w->size[1];
    right += off <= w->size[1] / ROUNDED ? w->size[1] : 0;
  }
  return right >= all * LIKELY / 100;
}

/* law_size is what a law says for a key, in bytes. */
static uint64_t law_size(const sp_law *w, double k) {
  double most = 0, size;
  for (int i = 0; i < w->points; i++) {
    if (w->key[i] == k)
      return (uint64_t)w->size[i];
    most = w->size[i] > most ? w->size[i] : most;
  }
  if (w->missed >= MISSES)
    return (uint64_t)most;
  if (w->points == 1)
    size = w->key[0] > 0 ? w->size[0] * k / w->key[0] : most;
  else
    size = w->points == 2 ? by_two(w, k) : by_three(w, k);
  return size < 0 ? 0 : size > WILD * most ? (uint64_t)(WILD * most) : (uint64_t)(size + 0.5);
}

uint64_t sp_laws_size_by(const sp_laws *l, uint64_t step, uint64_t reading) {
  const sp_segment *g = sp_laws_segment(l, step);
  if (l->law_of[step] == SP_NO_LAW || g->key == SP_NOWHERE || reading == 0)
    return 0;
  const sp_law *w = &l->laws[l->law_of[step]];
  return w->kind == g->kind ? law_size(w, (double)reading) : 0;
}

uint64_t sp_laws_size(const sp_laws *l, uint64_t step, uint64_t pass) {
  const sp_segment *g = sp_laws_segment(l, step);
  return g->pass == pass ? sp_laws_size_by(l, step, g->reading) : 0;
}

uint64_t sp_laws_new_size(const sp_laws *l, const sp_step *steps, uint64_t step, uint64_t pass) {
  const sp_segment *g = sp_laws_segment(l, step);
  return g->key == SP_NOWHERE || sp_step_fits(&steps[g->key], g->reading) ? 0 : sp_laws_size(l, step, pass);
}

static int holds(const sp_tally *t) { return t->judged >= SHOWN && t->right >= t->bytes / 100 * HOLD; }

uint64_t sp_laws_reach(const sp_laws *l, const sp_step *steps, uint64_t step) {
  const sp_segment *g = sp_laws_segment(l, step);
  uint64_t said = sp_laws_size_by(l, step, g->reach), most = steps[step].most;
  if (said == 0 || holds(&l->tallies[g->tally]))
    return said;
  return said < most || g->reach <= steps[g->key].most || l->tallies[g->tally].judged >= SHOWN ? most : said;
}

static uint64_t difference(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

int sp_laws_near(uint64_t said, uint64_t requested) { return difference(said, requested) <= said / NEAR; }

/* right says whether a request is as a law says. */
static int right(uint64_t said, uint64_t requested) { return difference(said, requested) <= requested / ROUNDED; }

/* judge counts how well laws hold lately, by bytes. */
static void judge(sp_tally *t, uint64_t said, uint64_t requested) {
  t->bytes += requested;
  t->right += right(said, requested) ? requested : 0;
  if (++t->judged % RECENT == 0) {
    t->bytes /= 2;
    t->right /= 2;
  }
}

int sp_laws_hold(const sp_laws *l) { return holds(&l->all); }

int sp_laws_hold_in(const sp_laws *l, uint64_t segment) { return holds(&l->tallies[l->segments[segment].tally]); }

int sp_laws_failed_in(const sp_laws *l, uint64_t segment) {
  const sp_tally *t = &l->tallies[l->segments[segment].tally];
  return t->judged >= SHOWN && !holds(t);
}

int sp_laws_contradicted(const sp_laws *l, uint64_t segment) {
  const sp_tally *t = &l->segments[segment].since;
  return t->right < t->bytes / 100 * HOLD;
}

int sp_laws_confirmed(const sp_laws *l, uint64_t segment) {
  return l->segments[segment].since.judged >= CONFIRMED && !sp_laws_contradicted(l, segment);
}

int sp_laws_doubt(sp_laws *l, uint64_t segment) {
  sp_segment *g = &l->segments[segment];
  if (g->reading == 0 || sp_laws_confirmed(l, segment))
    return 0;
  int farther = g->reach > g->before;
  g->reading = 0;
  g->reach = g->before;
  return farther;
}

void sp_laws_suppose(sp_laws *l, uint64_t segment) { l->segments[segment].supposed = CONFIRMED; }

int sp_laws_untried(const sp_laws *l) { return l->all.judged < SHOWN; }

int sp_laws_note(sp_laws *l, uint64_t step, uint64_t requested, uint64_t pass) {
  sp_segment *g = sp_laws_segment(l, step);
  if (requested > SP_LAW_MOST)
    return 0;
  if (step == g->key) {
    int farther = requested > g->reach;
    g->reading = requested;
    g->before = g->reach;
    g->reach = farther ? requested : g->reach;
    g->pass = pass;
    g->since = (sp_tally){0};
    g->supposed = 0;
    return farther;
  }
  if (l->law_of[step] == SP_NO_LAW || g->key == SP_NOWHERE || g->reading == 0 || g->pass != pass)
    return 0;
  sp_law *w = &l->laws[l->law_of[step]];
  if (w->kind != g->kind)
    return 0;
  uint64_t said = law_size(w, (double)g->reading);
  judge(&g->since, said, requested);
  if (g->supposed > 0) {
    g->supposed -= right(said, requested);
    return 0;
  }
  judge(&l->all, said, requested);
  judge(&l->tallies[g->tally], said, requested);
  if (requested <= said && said - requested <= said / TOO_MUCH)
    return 0;
  w->missed += w->points == 3 && w->missed < MISSES;
  add(w, (double)g->reading, (double)requested);
  return 1;
}
