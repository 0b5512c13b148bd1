/* align.c: the alignment of requests with a plan, for the tests that know what it should say.
 *
 *   align costs        prints what match_align.c counts with, and how far its logarithms are off
 *   align loops RUNS   prints for each plan how many loops it has, and of each the first step, the end and the period
 *   align next RUNS    prints for each request its step (-1: none), the part, how many cells there are, and whether the run is lost
 *   align match RUNS   prints what the matcher says: the step, the part, whether it has a place, and whether the run is looked for
 *   align hostile RUNS serves each plan anything, and looks at every cell after every request
 *   align time RUNS N  prints for each run the nanoseconds of a request, and the cells, over N requests at least
 *
 * RUNS is a file of runs. Each is a plan, behind its length in 8 bytes, and requests, behind their number in 8 bytes: the
 * bytes requested, and the stream. For `next` that is a bit for each of the plan's streams that the request may be on. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* The cells and the costs are nobody's business but the tests', so these have an alignment of their own. */
#define sp_align_new own_align_new
#define sp_align_free own_align_free
#define sp_align_begin own_align_begin
#define sp_align_next own_align_next
#define sp_align_lost own_align_lost
#include "../match_align.c"

#include "../match_state.h"
#include "../match.h"

#include "conformance.h"

enum { STREAMS = 64, ROUNDS = 3000 };

/* More than any alignment costs. */
enum { NEVER = 1 << 28 };

typedef struct {
  uint64_t size, stream;
} asked;

typedef struct {
  uint8_t *data;
  stplan_plan *plan;
  const sp_plan_device *of;
  uint64_t count;
  asked *list;
} run;

static uint64_t seed = 1;

static uint64_t draw(uint64_t below) {
  seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (seed >> 33) % below;
}

static uint64_t number(FILE *f) {
  uint64_t n;
  DEMAND(fread(&n, sizeof n, 1, f) == 1);
  return n;
}

/* read_run reads the next run. 0 at the end of the file. */
static int read_run(FILE *f, run *r) {
  uint64_t length;
  char error[256];
  if (fread(&length, sizeof length, 1, f) != 1)
    return 0;
  r->data = malloc(length);
  DEMAND(r->data != NULL && fread(r->data, 1, length, f) == length);
  if (stplan_plan_parse(r->data, length, &r->plan, error, sizeof error) != STPLAN_OK) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
  r->of = &r->plan->devices[0];
  r->count = number(f);
  r->list = malloc((r->count + 1) * sizeof *r->list);
  DEMAND(r->list != NULL && fread(r->list, sizeof *r->list, r->count, f) == r->count);
  return 1;
}

static void drop_run(run *r) {
  stplan_plan_close(r->plan);
  free(r->data);
  free(r->list);
}

/* costs prints what the recurrence counts with, and by how much of an octave logarithms are off at most. */
static void costs(void) {
  double most = 0;
  for (int k = 0; k < 64; k++)
    for (uint64_t i = 0; i < 512; i++) {
      uint64_t n = (UINT64_C(1) << k) + (k < 9 ? i >> (9 - k) : i << (k - 9));
      double off = fabs(logarithm(n) - OCTAVE * log2((double)n)) / OCTAVE;
      most = off > most ? off : most;
    }
  printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %f\n", EXTRA, OMITTED, OMITTED_DECIDED, OMITTED_OPTIONAL, NEW, PER_OCTAVE, OTHER,
         OTHER_IN_PROLOGUE, AGAIN, EARLY, BEAM, LOST, STRAINED, OCTAVE, CELLS, LANDMARK, most);
}

/* loops prints those of a plan. */
static void loops(const run *r) {
  sp_sequence s;
  sp_loop *list;
  uint64_t count;
  DEMAND(sp_sequence_make(&s, r->of));
  uint64_t *keys = sp_loop_keys(&s);
  DEMAND(keys != NULL && sp_loops_find(&s, keys, &list, &count));
  printf("%" PRIu64 "\n", count);
  for (uint64_t i = 0; i < count; i++)
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", list[i].first, list[i].end, list[i].period);
  free(list);
  free(keys);
  sp_sequence_drop(&s);
}

/* next says what each request is. */
static void next(const run *r) {
  sp_sequence s;
  DEMAND(sp_sequence_make(&s, r->of) && s.stream_count <= STREAMS);
  sp_align *a = sp_align_new(&s);
  DEMAND(a != NULL);
  for (uint64_t i = 0; i < r->count; i++) {
    uint8_t on[STREAMS];
    uint64_t part = 0;
    for (int k = 0; k < STREAMS; k++)
      on[k] = r->list[i].stream >> k & 1;
    uint64_t at = sp_align_next(a, r->list[i].size, on, &part);
    printf("%" PRId64 " %" PRIu64 " %d %d\n", (int64_t)at, part, a->count, sp_align_lost(a));
  }
  sp_align_free(a);
  sp_sequence_drop(&s);
}

/* match says what each request is to the matcher. */
static void match(const run *r) {
  sp_matcher *m = sp_matcher_new(r->of, 1);
  DEMAND(m != NULL);
  for (uint64_t i = 0; i < r->count; i++) {
    sp_match answer = sp_matcher_next(m, r->list[i].size, r->list[i].stream);
    uint64_t part = answer.matched ? sp_sequence_part(&m->plan, answer.step) : 0;
    printf("%" PRId64 " %" PRIu64 " %d %d\n", answer.matched ? (int64_t)answer.step : -1, part, answer.placed, m->astray);
  }
  sp_matcher_free(m);
}

/* odd is a size that hurts. */
static uint64_t odd(const sp_sequence *s, int way, int i) {
  static const uint64_t sizes[] = {0, 1, UINT64_C(1) << 63, UINT64_MAX, 511, 512};
  switch (way) {
  case 0: return sizes[draw(sizeof sizes / sizeof *sizes)];
  case 1: return i % 2 == 0 ? UINT64_MAX - draw(2) : draw(3);
  case 2: return (draw(1 << 30) << 33 | draw(1 << 30)) >> draw(64);
  case 3: return UINT64_C(1) << 63;
  case 4: return 0;
  default: return s->steps[draw(s->count)].most;
  }
}

/* line_after is the line that comes after a cell, as the cells are in order: the next one of its loop, or else that of the step behind the last
 * step of the line, or behind the loop's. *part becomes its part. */
static uint64_t line_after(const sp_align *a, const cell *c, uint64_t *part) {
  *part = c->part;
  if (c->line == SP_NOWHERE)
    return a->line_of[a->plan->parts[*part].first];
  const line *l = &a->lines[c->line];
  if (c->line < l->ends)
    return c->line + 1;
  const line *leaves = &a->lines[l->leaves];
  return a->line_of[sp_sequence_next(a->plan, leaves->first + (uint64_t)(leaves->rounds - 1) * leaves->period, part)];
}

/* cell_is_sound looks at one cell: its line is of its part, and it has come so far in a loop only if it is in one. */
static void cell_is_sound(const sp_align *a, const cell *c) {
  const sp_part *p = &a->plan->parts[c->part];
  DEMAND(c->cost >= 0 && c->cost < NEVER && c->part < a->plan->part_count);
  if (c->line == SP_NOWHERE)
    return;
  const line *l = &a->lines[c->line];
  DEMAND(l->begins <= c->line && c->line <= l->ends && l->begins <= l->leaves && l->leaves <= l->ends);
  DEMAND(l->first >= p->first && l->first + (uint64_t)(l->rounds - 1) * l->period < p->end);
  DEMAND(l->begins < l->ends || c->round == 0);
}

/* cells_are_sound looks at all cells: one costs nothing, they are in the order of the lines, and there are no more than the bound. The first of
 * a loop is among them if any is, and no others of them are to be forgotten. */
static void cells_are_sound(const sp_align *a) {
  int least = NEVER, near = 0;
  DEMAND(a->count > 0 && a->count <= CELLS);
  for (int i = 0; i < a->count; i++) {
    const cell *c = &a->cells[i];
    cell_is_sound(a, c);
    least = c->cost < least ? c->cost : least;
    if (i == 0)
      continue;
    uint64_t part, at = line_after(a, c - 1, &part);
    DEMAND(c->line == at && c->part == part);
  }
  DEMAND(least == 0 && a->cells[a->count - 1].cost <= BEAM);
  while (a->cells[near].cost > BEAM)
    near++;
  uint64_t first = a->cells[0].line, kept = a->cells[near].line;
  DEMAND(first == SP_NOWHERE ? near == 0 : first == a->lines[kept].begins && (uint64_t)near == kept - first);
}

/* loops_are_whole looks at the last loop once the lines ahead have been added: all its lines are there, unless the bound cuts it off. The next
 * request would add the same lines. */
static void loops_are_whole(sp_align *a) {
  reach(a);
  DEMAND(a->count <= CELLS);
  DEMAND(a->count == CELLS || !in_loop(a));
}

/* hostile begins anywhere, and asks for anything on any streams. */
static int hostile(const run *r) {
  enum { WAYS = 6 };
  sp_sequence s;
  int most = 0;
  DEMAND(sp_sequence_make(&s, r->of) && s.stream_count <= STREAMS);
  sp_align *a = sp_align_new(&s);
  DEMAND(a != NULL);
  for (int way = 0; way < WAYS; way++) {
    if (way > 0) {
      uint64_t at = draw(s.count);
      sp_align_begin(a, at, sp_sequence_part(&s, at));
      loops_are_whole(a);
    }
    for (int i = 0; i < ROUNDS; i++) {
      uint8_t on[STREAMS];
      uint64_t part = UINT64_MAX;
      for (int k = 0; k < STREAMS; k++)
        on[k] = way == WAYS - 1 || draw(8) > 0;
      uint64_t at = sp_align_next(a, odd(&s, way, i), on, &part);
      DEMAND(part < s.part_count);
      DEMAND(at == SP_NOWHERE || (at >= s.parts[part].first && at < s.parts[part].end && on[s.steps[at].stream]));
      cells_are_sound(a);
      loops_are_whole(a);
      most = a->count > most ? a->count : most;
    }
  }
  sp_align_free(a);
  sp_sequence_drop(&s);
  /* The same through the matcher, which is lost and looks for the run now and then. */
  sp_matcher *m = sp_matcher_new(r->of, 1);
  DEMAND(m != NULL);
  for (int i = 0; i < WAYS * ROUNDS; i++) {
    sp_match answer = sp_matcher_next(m, odd(&m->plan, i / ROUNDS, i), draw(3));
    DEMAND(!answer.matched || answer.step < m->plan.count);
    if (m->align != NULL)
      DEMAND(m->at == SP_NOWHERE || (m->part < m->plan.part_count && m->at < m->plan.count));
  }
  sp_matcher_free(m);
  return most;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* take times the run again and again, from the plan's first step on each time. */
static void take(const run *r, uint64_t least) {
  sp_sequence s;
  uint8_t on[STREAMS];
  uint64_t part, requests = 0, steps = 0;
  double cells = 0, took = 0;
  memset(on, 1, sizeof on);
  DEMAND(r->count > 0 && sp_sequence_make(&s, r->of) && s.stream_count <= STREAMS);
  sp_align *a = sp_align_new(&s);
  DEMAND(a != NULL);
  while (requests < least) {
    sp_align_begin(a, 0, sp_sequence_part(&s, 0));
    double begin = now();
    for (uint64_t i = 0; i < r->count; i++) {
      steps += sp_align_next(a, r->list[i].size, on, &part) != SP_NOWHERE;
      cells += a->count;
    }
    took += now() - begin;
    requests += r->count;
  }
  printf("%.1f %.1f %.4f\n", took / (double)requests, cells / (double)requests, (double)steps / (double)requests);
  sp_align_free(a);
  sp_sequence_drop(&s);
}

int main(int count, char **arguments) {
  DEMAND(count >= 2);
  const char *what = arguments[1];
  if (strcmp(what, "costs") == 0) {
    costs();
    return 0;
  }
  FILE *f = count > 2 ? fopen(arguments[2], "rb") : NULL;
  DEMAND(f != NULL);
  run r;
  for (; read_run(f, &r); drop_run(&r)) {
    if (strcmp(what, "loops") == 0)
      loops(&r);
    else if (strcmp(what, "next") == 0)
      next(&r);
    else if (strcmp(what, "match") == 0)
      match(&r);
    else if (strcmp(what, "hostile") == 0)
      printf("%d\n", hostile(&r));
    else if (strcmp(what, "time") == 0 && count > 3)
      take(&r, strtoull(arguments[3], NULL, 10));
    else
      DEMAND(!"one of the above");
  }
  fclose(f);
  return 0;
}
