#include "matcher.h"

#include <stdlib.h>
#include <string.h>

#include "sequence.h"

enum {
  HYPOTHESES = 32,
  CONFIRMED = 3,  /* times in a row that a hypothesis has to fit */
  CONFIRMED_FAR = 16, /* where it is far from the pointer */
  SETTLED = 64,   /* times in a row that the pointer fits before others are forgotten */
  AHEAD = 256,    /* steps after the pointer that hypotheses are looked for at */
  BEHIND = 32,    /* and before it */
  OPTIONAL = 64,  /* optional steps that are skipped at once */
  VARIES = 2,     /* times that a request may be smaller or larger than any recorded one */
  GRAMS = 4       /* places of a gram that are taken up, each way */
};

typedef struct {
  uint64_t at; /* the step that fitted last */
  uint64_t part;
  int fitted; /* times in a row */
} hypothesis;

struct sp_matcher {
  sp_sequence plan;
  uint64_t at; /* the pointer: the step expected next, SP_NOWHERE at the end */
  uint64_t part;
  int fitted; /* times in a row that the pointer fitted */
  int adrift;
  hypothesis list[HYPOTHESES];
  int count;
  uint64_t recent[SP_GRAM]; /* requests, the last one last */
  uint64_t seen;            /* requests so far */
  uint64_t anchor;          /* step where a mark is expected, SP_NOWHERE before one is known */
  stplan_stream *bound;     /* the run's stream for each of the plan's */
  uint8_t *is_bound;
};

sp_matcher *sp_matcher_new(const sp_plan_device *plan) {
  sp_matcher *m = calloc(1, sizeof *m);
  if (m == NULL)
    return NULL;
  if (!sp_sequence_make(&m->plan, plan)) {
    free(m);
    return NULL;
  }
  m->bound = calloc(m->plan.stream_count + 1, sizeof *m->bound);
  m->is_bound = calloc(m->plan.stream_count + 1, 1);
  m->anchor = SP_NOWHERE;
  m->at = m->plan.count == 0 ? SP_NOWHERE : 0;
  if (m->bound == NULL || m->is_bound == NULL) {
    sp_matcher_free(m);
    return NULL;
  }
  m->part = sp_sequence_part(&m->plan, 0);
  return m;
}

void sp_matcher_free(sp_matcher *m) {
  if (m == NULL)
    return;
  sp_sequence_drop(&m->plan);
  free(m->bound);
  free(m->is_bound);
  free(m);
}

static int fits(const sp_matcher *m, uint64_t at, uint64_t requested) {
  return requested >= m->plan.steps[at].least && requested <= m->plan.steps[at].most;
}

/* may_fit says whether a request is not far from those of the recording, at a
 * step whose size varies. */
static int may_fit(const sp_matcher *m, uint64_t at, uint64_t requested) {
  const sp_step *s = &m->plan.steps[at];
  return s->varies && requested >= s->least / VARIES && requested / VARIES <= s->most;
}

/* fits_stream says whether the run's stream is the plan's at this step, as far
 * as is known. Handles differ from run to run, so they are learnt. */
static int fits_stream(const sp_matcher *m, uint64_t at, stplan_stream stream) {
  uint32_t s = m->plan.steps[at].stream;
  return !m->is_bound[s] || m->bound[s] == stream;
}

static void suppose(sp_matcher *m, uint64_t at, uint64_t part, int fitted) {
  for (int i = 0; i < m->count; i++)
    if (m->list[i].at == at) {
      if (fitted > m->list[i].fitted)
        m->list[i].fitted = fitted;
      return;
    }
  if (m->count < HYPOTHESES)
    m->list[m->count++] = (hypothesis){at, part, fitted};
}

/* advance moves every hypothesis by a request; those that it does not fit die. */
static void advance(sp_matcher *m, uint64_t requested) {
  int kept = 0;
  for (int i = 0; i < m->count; i++) {
    hypothesis h = m->list[i];
    h.at = sp_sequence_next(&m->plan, h.at, &h.part);
    if (h.at == SP_NOWHERE || h.at == m->at || !fits(m, h.at, requested))
      continue; /* one that is where the pointer is says nothing new */
    h.fitted++;
    m->list[kept++] = h;
  }
  m->count = kept;
}

/* suppose_near takes up the places around the pointer where a request fits,
 * nearest first. */
static void suppose_near(sp_matcher *m, uint64_t requested) {
  uint64_t at = m->at, part = m->part;
  for (int i = 0; i < AHEAD && at != SP_NOWHERE && m->count < HYPOTHESES * 3 / 4; i++) {
    if (i > 0 && fits(m, at, requested))
      suppose(m, at, part, 1);
    at = sp_sequence_next(&m->plan, at, &part);
  }
  uint64_t first = m->plan.parts[m->part].first;
  at = m->at == SP_NOWHERE ? m->plan.count : m->at;
  for (int i = 0; i < BEHIND && at > first && m->count < HYPOTHESES; i++)
    if (fits(m, --at, requested))
      suppose(m, at, m->part, 1);
}

/* suppose_starts takes up the beginnings of bodies. */
static void suppose_starts(sp_matcher *m, uint64_t requested) {
  for (uint64_t p = 1; p < m->plan.part_count && m->count < HYPOTHESES; p++)
    if (fits(m, m->plan.parts[p].first, requested))
      suppose(m, m->plan.parts[p].first, p, 1);
}

/* suppose_grams takes up the places where the last requests occur: the next ones
 * after the pointer, and the first ones. */
static void suppose_grams(sp_matcher *m) {
  if (m->seen < SP_GRAM)
    return;
  uint64_t hash = sp_gram_hash(m->recent);
  uint64_t from[] = {m->at == SP_NOWHERE ? 0 : m->at, 0};
  for (int k = 0; k < 2; k++) {
    uint64_t g = sp_sequence_grams(&m->plan, hash, from[k]);
    for (int i = 0; i < GRAMS && g < m->plan.gram_count && m->plan.grams[g].hash == hash; i++, g++) {
      uint64_t at = m->plan.grams[g].at;
      if (fits(m, at, m->recent[SP_GRAM - 1]))
        suppose(m, at, sp_sequence_part(&m->plan, at), 1);
    }
  }
}

/* distance orders places by how far they are. Requests are left out more often
 * than they are repeated, so a place behind counts for one further ahead. */
static uint64_t distance(const sp_matcher *m, uint64_t at) {
  uint64_t from = m->at == SP_NOWHERE ? m->plan.count : m->at;
  return at >= from ? at - from : (from - at) * (AHEAD / BEHIND);
}

/* best is the confirmed hypothesis that fitted most often, of equals the
 * nearest; NULL where none is confirmed. */
static const hypothesis *best(const sp_matcher *m) {
  const hypothesis *found = NULL;
  for (int i = 0; i < m->count; i++) {
    const hypothesis *h = &m->list[i];
    if (h->fitted < (distance(m, h->at) <= 2 * AHEAD ? CONFIRMED : CONFIRMED_FAR))
      continue;
    if (found == NULL || h->fitted > found->fitted ||
        (h->fitted == found->fitted && distance(m, h->at) < distance(m, found->at)))
      found = h;
  }
  return found;
}

/* skip_optional is the step that fits behind optional ones at the pointer, or
 * SP_NOWHERE. */
static uint64_t skip_optional(const sp_matcher *m, uint64_t requested, stplan_stream stream, uint64_t *part) {
  uint64_t at = m->at;
  *part = m->part;
  for (int i = 0; i < OPTIONAL && at != SP_NOWHERE; i++) {
    if (i > 0 && fits(m, at, requested) && fits_stream(m, at, stream))
      return at;
    if (!m->plan.steps[at].optional)
      return SP_NOWHERE;
    at = sp_sequence_next(&m->plan, at, part);
  }
  return SP_NOWHERE;
}

/* serve answers with the step at a place and moves the pointer behind it. */
static void serve(sp_matcher *m, uint64_t at, uint64_t part, stplan_stream stream, sp_match *answer) {
  const sp_step *step = &m->plan.steps[at];
  m->bound[step->stream] = stream;
  m->is_bound[step->stream] = 1;
  answer->matched = 1;
  answer->placed = step->placed;
  answer->offset = step->offset;
  answer->size = step->size;
  m->part = part;
  m->at = sp_sequence_next(&m->plan, at, &m->part);
  m->adrift = 0;
  m->fitted++;
}

static void remember(sp_matcher *m, uint64_t requested) {
  memmove(m->recent, m->recent + 1, (SP_GRAM - 1) * sizeof *m->recent);
  m->recent[SP_GRAM - 1] = requested;
  m->seen++;
}

/* drift looks for the place of a request that fits neither the pointer nor what
 * is behind optional steps. */
static void drift(sp_matcher *m, uint64_t requested, stplan_stream stream, sp_match *answer) {
  answer->drifted = !m->adrift;
  m->adrift = 1;
  m->fitted = 0;
  const hypothesis *h = best(m);
  if (h != NULL) {
    hypothesis chosen = *h;
    answer->jumped = 1;
    serve(m, chosen.at, chosen.part, stream, answer);
    return;
  }
  suppose_near(m, requested);
  suppose_starts(m, requested);
  suppose_grams(m);
}

sp_match sp_matcher_next(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  sp_match answer = {0};
  uint64_t part;
  remember(m, requested);
  advance(m, requested);
  if (m->at != SP_NOWHERE && fits(m, m->at, requested) && fits_stream(m, m->at, stream)) {
    serve(m, m->at, m->part, stream, &answer);
    if (m->fitted >= SETTLED)
      m->count = 0;
  } else {
    uint64_t at = m->adrift ? SP_NOWHERE : skip_optional(m, requested, stream, &part);
    if (at != SP_NOWHERE)
      serve(m, at, part, stream, &answer);
    else if (!m->adrift && m->at != SP_NOWHERE && may_fit(m, m->at, requested))
      serve(m, m->at, m->part, stream, &answer);
    else
      drift(m, requested, stream, &answer);
  }
  answer.body = m->plan.periodic && m->part > 0;
  answer.ended = !m->plan.periodic && m->at == SP_NOWHERE;
  return answer;
}

int sp_matcher_needs(const sp_matcher *m, uint64_t offset, uint64_t size, int steps) {
  uint64_t at = m->at, part = m->part, left = (uint64_t)steps;
  while (left > 0 && at != SP_NOWHERE) {
    uint64_t end = m->plan.parts[part].end;
    if (end - at > left)
      end = at + left;
    left -= end - at;
    for (const sp_step *s = &m->plan.steps[at]; s < &m->plan.steps[end]; s++)
      if (s->offset < offset + size && offset < s->offset + s->size)
        return 1;
    at = sp_sequence_next(&m->plan, end - 1, &part);
  }
  return 0;
}

void sp_matcher_mark(sp_matcher *m) {
  if (!m->plan.periodic)
    return;
  if (!m->adrift && m->part > 0 && m->fitted >= SETTLED)
    m->anchor = m->at;
  else if (m->adrift && m->anchor != SP_NOWHERE) {
    m->at = m->anchor;
    m->part = sp_sequence_part(&m->plan, m->at);
    m->count = 0;
  }
}
