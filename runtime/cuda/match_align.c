#include "match_align.h"

#include <stdlib.h>
#include <string.h>

#include "match_loops.h"
#include "sizes.h"

/* Lines at which the run may be. It bounds the time of a request. */
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

/* A loop may have any number of rounds. One more than were recorded, and leaving before the last one, cost this much: what looks like a
 * round may be what comes behind the loop, and the other way round. */
enum { AGAIN = 24, EARLY = 16 };

/* What costs this much more than the best alignment is forgotten. */
enum { BEAM = 160 };

/* Of the last 64 requests, so few are steps if the run is elsewhere, or a request costs so much on average. Then steps are found for them, of a loop or
 * of experts, but not their own. */
enum { LOST = 8, STRAINED = 6 };

/* Bytes. What lies between two layers has some buffers of at least this much, and any size may be a small buffer's by chance. */
enum { LANDMARK = 1 << 20 };

/* The unit of logarithms of base 2. */
enum { OCTAVE = 64 };

/* No ratio. */
enum { NONE = INT16_MIN };

/* line is a step, or those of the rounds of a loop that are the same line of the program. */
typedef struct {
  uint64_t first;          /* the first of its steps */
  uint32_t period, rounds; /* the others are `period` steps apart each; one round if it is in no loop */
  uint32_t begins, ends;   /* the first and the last line of its loop, itself if it is in none */
  uint32_t leaves;         /* the line of its loop behind which the run goes on */
  uint32_t stream;         /* index in the plan */
  uint8_t decided;         /* data decide its size */
  uint8_t sure;            /* they do not, as other steps show */
  uint8_t omitted;         /* what it costs without a request */
  uint64_t least, most;    /* bytes requested in the recording */
} line;

/* cell is a place at which the run may be: what comes up to a line is done. */
typedef struct {
  uint64_t line; /* SP_NOWHERE before the first one of a part */
  uint32_t part, round;
  int32_t cost;    /* above that of the best cell */
  int16_t ratio;   /* of the last request whose size data decide to what was recorded, as a logarithm; NONE if there was none */
  uint8_t matched; /* the last request is this line */
} cell;

struct sp_align {
  const sp_sequence *plan;
  int16_t *recorded; /* of each step: the logarithm of the most bytes requested there */
  uint32_t *line_of; /* of each step */
  line *lines;
  uint64_t steps; /* a bit for each of the last requests: whether it was a step */
  int strain;     /* what the last 64 requests cost, about */
  int count;
  cell cells[CELLS]; /* in the order of the plan; all lines of a loop from its first one on, if any */
  cell before[CELLS];
};

/* logarithm is that of a number, in OCTAVEs. Between powers of two log2(1 + x) is taken to be x and a parabola, which is off by
 * 0.04 octaves at most. */
static int logarithm(uint64_t n) {
  int k = 63 - __builtin_clzll(n | 1);
  int x = (int)(k >= 6 ? (n >> (k - 6)) - OCTAVE : (n << (6 - k)) - OCTAVE);
  return n == 0 ? 0 : k * OCTAVE + x + 22 * x * (OCTAVE - x) / (OCTAVE * OCTAVE);
}

/* range is the sizes that data decide, of the steps of bodies with one key. */
typedef struct {
  uint64_t key, least, most;
} range;

/* fixed are the sizes that do not vary: those that steps of bodies have in every pass, each with what tells lines of the program apart. A
 * prologue was recorded once, and a step that some pass lacks maybe, so they do not show by themselves whether data decide their sizes. A size
 * that data decide elsewhere, for the same key, is not among them: an expert may have it by chance. */
typedef struct {
  const sp_sequence *plan;
  const uint64_t *keys; /* sp_loop_keys */
  uint64_t *sizes, count;
} fixed;

static int by_key(const void *a, const void *b) { return sp_by_number(&((const range *)a)->key, &((const range *)b)->key); }

/* ranges_of finds one range for each key of which sizes vary, in the order of keys. NULL without host memory. */
static range *ranges_of(const sp_sequence *plan, const uint64_t *keys, uint64_t *count) {
  range *list = malloc((plan->count + 1) * sizeof *list);
  uint64_t n = 0, kept = 0;
  if (list == NULL)
    return NULL;
  for (uint64_t i = plan->parts[0].end; i < plan->count; i++)
    if (plan->steps[i].least < plan->steps[i].most)
      list[n++] = (range){keys[i], plan->steps[i].least, plan->steps[i].most};
  qsort(list, n, sizeof *list, by_key);
  for (uint64_t i = 0; i < n; i++) {
    if (kept == 0 || list[kept - 1].key != list[i].key)
      list[kept++] = list[i];
    list[kept - 1].least = sp_least(list[kept - 1].least, list[i].least);
    list[kept - 1].most = list[i].most > list[kept - 1].most ? list[i].most : list[kept - 1].most;
  }
  *count = kept;
  return list;
}

static uint64_t fixed_size(const fixed *f, uint64_t at) { return f->keys[at] ^ f->plan->steps[at].most * UINT64_C(0xd6e8feb86659fd93); }

/* fixed_make is 0 without host memory. */
static int fixed_make(fixed *f, const sp_sequence *plan, const uint64_t *keys) {
  uint64_t ranges = 0;
  *f = (fixed){.plan = plan, .keys = keys, .sizes = malloc((plan->count + 1) * sizeof *f->sizes)};
  range *list = f->sizes == NULL ? NULL : ranges_of(plan, keys, &ranges);
  if (list == NULL)
    return 0;
  for (uint64_t i = plan->parts[0].end; i < plan->count; i++) {
    const sp_step *s = &plan->steps[i];
    const range of = {.key = keys[i]}, *r = bsearch(&of, list, ranges, sizeof of, by_key);
    if (!s->optional && s->least == s->most && (r == NULL || s->most < r->least || s->most > r->most))
      f->sizes[f->count++] = fixed_size(f, i);
  }
  free(list);
  qsort(f->sizes, f->count, sizeof *f->sizes, sp_by_number);
  return 1;
}

static int is_fixed(const fixed *f, uint64_t at) {
  uint64_t size = fixed_size(f, at);
  const sp_step *s = &f->plan->steps[at];
  return s->least == s->most && bsearch(&size, f->sizes, f->count, sizeof size, sp_by_number) != NULL;
}

/* describe says of a line what its steps say. */
static void describe(line *l, const fixed *f) {
  int optional = 1, decided = 0;
  l->stream = f->plan->steps[l->first].stream;
  l->least = UINT64_MAX;
  for (uint64_t r = 0; r < l->rounds; r++) {
    uint64_t at = l->first + r * l->period;
    const sp_step *s = &f->plan->steps[at];
    int is = is_fixed(f, at);
    optional &= s->optional;
    decided |= !is && (s->shared || s->varies || s->roomy);
    l->sure |= (uint8_t)is;
    l->least = sp_least(l->least, s->least);
    l->most = s->most > l->most ? s->most : l->most;
  }
  l->decided = (uint8_t)(l->begins == l->ends ? decided : l->least < l->most);
  l->omitted = optional ? OMITTED_OPTIONAL : l->decided ? OMITTED_DECIDED : OMITTED;
}

/* set_lines makes the lines of steps, of which the loops have one for all rounds. */
static void set_lines(sp_align *a, const fixed *f, const sp_loop *loops, uint64_t count) {
  uint32_t n = 0;
  for (uint64_t at = 0, k = 0; at < a->plan->count;) {
    sp_loop l = {at, at + 1, 1};
    if (k < count && loops[k].first == at)
      l = loops[k++];
    for (uint64_t i = 0; i < l.end - at; i++)
      a->line_of[at + i] = n + (uint32_t)(i % l.period);
    for (uint32_t i = 0; i < l.period; i++) {
      line *of = &a->lines[n + i];
      of->first = at + i;
      of->period = (uint32_t)l.period;
      of->rounds = (uint32_t)((l.end - at - 1 - i) / l.period) + 1;
      of->begins = n;
      of->ends = n + (uint32_t)l.period - 1;
      of->leaves = a->line_of[l.end - 1];
      describe(of, f);
    }
    n += (uint32_t)l.period;
    at = l.end;
  }
}

/* tell_sizes has the keys tell large steps of one size from others too: what is between the layers ends the loop of a layer's experts, however
 * long it lives. */
static void tell_sizes(const fixed *f, uint64_t *keys) {
  for (uint64_t i = 0; i < f->plan->count; i++)
    if (f->plan->steps[i].most >= LANDMARK && is_fixed(f, i))
      keys[i] = fixed_size(f, i);
}

/* make_lines is 0 without host memory. */
static int make_lines(sp_align *a) {
  fixed f = {0};
  sp_loop *loops = NULL;
  uint64_t size = (a->plan->count + 1) * sizeof(uint64_t), *keys = sp_loop_keys(a->plan), *told = malloc(size), count;
  int ok = keys != NULL && told != NULL && fixed_make(&f, a->plan, keys);
  if (ok) {
    memcpy(told, keys, a->plan->count * sizeof *told);
    tell_sizes(&f, told);
    ok = sp_loops_find(a->plan, told, &loops, &count);
  }
  if (ok)
    set_lines(a, &f, loops, count);
  free(loops);
  free(f.sizes);
  free(told);
  free(keys);
  return ok;
}

sp_align *sp_align_new(const sp_sequence *plan) {
  sp_align *a = calloc(1, sizeof *a);
  if (a == NULL)
    return NULL;
  a->plan = plan;
  a->recorded = malloc((plan->count + 1) * sizeof *a->recorded);
  a->line_of = malloc((plan->count + 1) * sizeof *a->line_of);
  a->lines = calloc(plan->count + 1, sizeof *a->lines);
  if (a->recorded == NULL || a->line_of == NULL || a->lines == NULL || !make_lines(a)) {
    sp_align_free(a);
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
  free(a->line_of);
  free(a->lines);
  free(a);
}

void sp_align_begin(sp_align *a, uint64_t at, uint64_t part) {
  a->count = 0;
  a->steps = UINT64_MAX;
  a->strain = 0;
  if (at == a->plan->parts[part].first) {
    a->cells[a->count++] = (cell){.line = SP_NOWHERE, .part = (uint32_t)part, .ratio = NONE};
    return;
  }
  uint64_t last = a->line_of[at - 1];
  const line *l = &a->lines[last];
  for (uint64_t i = l->begins; i <= last; i++)
    a->cells[a->count++] = (cell){.line = i, .part = (uint32_t)part, .round = (uint32_t)((at - 1 - l->first) / l->period), .cost = i < last ? BEAM + 1 : 0, .ratio = NONE};
}

int sp_align_lost(const sp_align *a) { return __builtin_popcountll(a->steps) < LOST || a->strain > 64 * STRAINED; }

/* step_of is the step of a line in a round. If the run has more of them than the plan, it is that of the last one. */
static uint64_t step_of(const line *l, uint64_t round) { return l->first + sp_least(round, l->rounds - 1) * l->period; }

/* goes_on says whether a line that comes after a cell is further on in the same loop. A body that is one loop comes after itself. */
static int goes_on(const sp_align *a, const cell *before, uint64_t at) {
  return before->line != SP_NOWHERE && before->line < at && a->lines[before->line].begins == a->lines[at].begins;
}

/* round_at is the round of a line that comes after a cell. */
static uint32_t round_at(const sp_align *a, const cell *before, uint64_t at) { return goes_on(a, before, at) ? before->round : 0; }

/* leaving is what it costs to go on from a cell to a line that comes after it: more if that leaves a loop early. */
static int32_t leaving(const sp_align *a, const cell *before, uint64_t at) {
  if (before->line == SP_NOWHERE || before->round + 1 >= a->lines[before->line].rounds || goes_on(a, before, at))
    return 0;
  return EARLY;
}

/* previous is the cell that the i-th one comes after, but as the next round of a loop; -1 if it is not among the cells. */
static int previous(const sp_align *a, int i) {
  int at = i - 1;
  if (at >= 0 && a->cells[at].line != SP_NOWHERE) {
    const line *l = &a->lines[a->cells[at].line];
    at -= a->cells[at].line == l->ends ? (int)(l->ends - l->leaves) : 0;
  }
  return at < 0 ? -1 : at;
}

/* in_loop says whether lines of the last cell's loop are behind it. */
static int in_loop(const sp_align *a) {
  uint64_t last = a->cells[a->count - 1].line;
  return last != SP_NOWHERE && last < a->lines[last].ends;
}

/* reach adds the lines ahead that the run may be at, and all of their loops. */
static void reach(sp_align *a) {
  while (a->count < CELLS) {
    int whole = in_loop(a), p = whole ? a->count - 1 : previous(a, a->count);
    if (p < 0)
      return;
    const cell *last = &a->cells[p];
    uint64_t part = last->part, at = a->plan->parts[part].first;
    if (last->line != SP_NOWHERE)
      at = whole ? a->lines[last->line + 1].first : sp_sequence_next(a->plan, step_of(&a->lines[last->line], UINT32_MAX), &part);
    if (at == SP_NOWHERE)
      return;
    at = a->line_of[at];
    int32_t cost = last->cost + a->lines[at].omitted + leaving(a, last, at);
    if (cost > BEAM && !whole)
      return;
    a->cells[a->count++] = (cell){.line = at, .part = (uint32_t)part, .round = round_at(a, last, at), .cost = cost, .ratio = last->ratio};
  }
}

/* as_line is the cost of a request as a line that comes after a cell. *ratio becomes that behind it. */
static int32_t as_line(const sp_align *a, const cell *before, uint64_t at, uint32_t round, uint64_t requested, int log, int *ratio) {
  const line *l = &a->lines[at];
  uint64_t step = step_of(l, round);
  *ratio = before->ratio;
  if (l->decided) {
    *ratio = log - a->recorded[step];
    int off = before->ratio == NONE ? OCTAVE : abs(*ratio - before->ratio);
    return (int32_t)sp_least(NEW, (uint64_t)off * PER_OCTAVE / OCTAVE);
  }
  if (requested >= l->least && requested <= l->most)
    return 0;
  return step < a->plan->parts[0].end && !a->plan->steps[step].stays && !l->sure ? OTHER_IN_PROLOGUE : OTHER;
}

/* request is one, and the logarithm of its bytes. */
typedef struct {
  uint64_t bytes;
  int log;
} request;

/* come has a cell be what comes after another one with the request, if that costs less. `more` is what going on from there costs. */
static void come(const sp_align *a, cell *c, const cell *before, uint32_t round, int32_t more, request r) {
  int ratio = NONE;
  int32_t cost = before->cost + more;
  if (cost > c->cost) /* most are */
    return;
  cost += as_line(a, before, c->line, round, r.bytes, r.log, &ratio);
  if (cost > c->cost)
    return;
  c->cost = cost;
  c->round = round;
  c->ratio = (int16_t)ratio;
  c->matched = 1;
}

/* omit has a cell be what comes after another one without a request, if that costs less. */
static void omit(const sp_align *a, cell *c, const cell *before, int32_t more, uint32_t round) {
  int32_t cost = before->cost + a->lines[c->line].omitted + more;
  if (cost >= c->cost)
    return;
  c->cost = cost;
  c->round = round;
  c->ratio = before->ratio;
}

/* advance_in_loop is advance for a cell in or behind a loop. */
static void advance_in_loop(sp_align *a, cell *c, int i, request r, int may_be) {
  const line *l = &a->lines[c->line];
  int p = previous(a, i), end = i + (int)(l->ends - l->begins);
  if (p >= 0)
    omit(a, c, &a->cells[p], leaving(a, &a->cells[p], c->line), round_at(a, &a->cells[p], c->line));
  if (may_be && c->line == l->begins && end > i && end < a->count) {
    const cell *last = &a->before[end];
    come(a, c, last, last->round + 1, last->round + 1 < l->rounds ? 0 : AGAIN, r);
  }
  if (may_be && p >= 0)
    come(a, c, &a->before[p], round_at(a, &a->before[p], c->line), leaving(a, &a->before[p], c->line), r);
}

/* advance finds the costs of all cells with one more request, and the best of them. */
static int advance(sp_align *a, request r, const uint8_t *on_stream) {
  int best = 0, loops = 0; /* whether the cell before is in a loop */
  memcpy(a->before, a->cells, (size_t)a->count * sizeof *a->cells);
  for (int i = 0; i < a->count; i++) {
    cell *c = &a->cells[i];
    c->cost += EXTRA;
    c->matched = 0;
    if (c->line != SP_NOWHERE) {
      const line *l = &a->lines[c->line];
      int may_be = on_stream[l->stream], behind = loops;
      loops = l->begins < l->ends;
      if (behind || loops) {
        advance_in_loop(a, c, i, r, may_be);
      } else if (i > 0) {
        omit(a, c, &c[-1], 0, 0);
        if (may_be)
          come(a, c, &a->before[i - 1], 0, 0, r);
      }
    }
    if (c->cost < a->cells[best].cost)
      best = i;
  }
  return best;
}

/* narrow forgets the cells at either end that cost too much, but for those of a loop from whose other cells the run may go back to them. */
static void narrow(sp_align *a, int32_t best) {
  int from = 0;
  while (a->cells[from].cost > best + BEAM)
    from++;
  while (a->cells[a->count - 1].cost > best + BEAM)
    a->count--;
  if (a->cells[from].line != SP_NOWHERE) {
    int back = (int)(a->cells[from].line - a->lines[a->cells[from].line].begins);
    from = from > back ? from - back : 0;
  }
  a->count -= from;
  memmove(a->cells, a->cells + from, (size_t)a->count * sizeof *a->cells);
  for (int i = 0; i < a->count; i++)
    a->cells[i].cost -= best;
}

uint64_t sp_align_next(sp_align *a, uint64_t requested, const uint8_t *on_stream, uint64_t *part) {
  reach(a);
  cell found = a->cells[advance(a, (request){requested, logarithm(requested)}, on_stream)];
  narrow(a, found.cost);
  a->strain += found.cost - a->strain / 64;
  a->steps = a->steps << 1 | found.matched;
  *part = found.part;
  return found.matched ? step_of(&a->lines[found.line], found.round) : SP_NOWHERE;
}
