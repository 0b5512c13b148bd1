#include "match.h"

#include <stdlib.h>
#include <string.h>

#include "match_choose.h"
#include "match_kin.h"
#include "match_load.h"
#include "match_state.h"
#include "sizes.h"

/* Requests in a row that the pointer has to fit before hypotheses are
 * forgotten, and before a mark is noted. By then another place that begins
 * alike has shown a difference. */
enum { SETTLED = 64 };

/* Requests without a step after which the run is also looked for in the
 * prologue: the program may have begun anew. */
enum { ASTRAY = 256 };

/* Requests in a row without a step that each raise hypotheses. A search costs a few
 * hundred steps of the plan, and a program may do something else for hours: after
 * PATIENT, every second request searches, after twice as many every fourth, and so on. */
enum { PATIENT = 32 };

/* In the end one request in SELDOM searches. */
enum { SELDOM = 64 };

/* Requests in a row that the pointer fits, after which a run that was lost is aligned again. */
enum { FOUND = 3 };

/* Each request counts 1/MEMORY in how often consecutive scales agree. */
enum { MEMORY = 32 };

/* originate finds the origin of each step. 0 without host memory. */
static int originate(sp_matcher *m) {
  const sp_sequence *s = &m->plan;
  sp_kin kin = {0};
  const uint32_t *twin;
  if (m->layout == NULL && !sp_kin_make(&kin, s))
    return 0;
  twin = m->layout == NULL ? kin.twin : sp_layout_laws(m->layout)->twin;
  m->origin = malloc((s->count + 1) * sizeof *m->origin);
  if (m->origin != NULL) {
    for (uint64_t i = 0; i < s->count; i++)
      m->origin[i] = (uint32_t)i;
    for (uint64_t i = s->parts[0].first; i < s->parts[0].end; i++)
      m->origin[twin[i]] = (uint32_t)i;
    for (uint64_t i = s->parts[0].end; i < s->count; i++)
      m->origin[i] = m->origin[twin[i]];
  }
  sp_kin_drop(&kin);
  return m->origin != NULL;
}

sp_matcher *sp_matcher_new(const sp_plan_device *plan, int stretches) {
  sp_matcher *m = calloc(1, sizeof *m);
  if (m == NULL)
    return NULL;
  if (!sp_sequence_make(&m->plan, plan)) {
    free(m);
    return NULL;
  }
  m->others.plan = &m->plan;
  m->bound = calloc(m->plan.stream_count + 1, sizeof *m->bound);
  m->is_bound = calloc(m->plan.stream_count + 1, 1);
  m->may_be = calloc(m->plan.stream_count + 1, 1);
  m->anchors = calloc(m->plan.part_count, sizeof *m->anchors);
  if (m->plan.shares && (m->align = sp_align_new(&m->plan)) == NULL) {
    sp_matcher_free(m);
    return NULL;
  }
  int ok = (!stretches || m->plan.shares || sp_layout_make(&m->layout, &m->plan, plan)) && originate(m);
  m->load = sp_load_make(&m->plan, plan);
  ok = ok && m->load != NULL && sp_load_at_peak(&m->at_peak, &m->plan, m->load);
  if (!ok || !sp_frees_make(&m->frees, m->plan.count) || m->bound == NULL || m->is_bound == NULL || m->may_be == NULL || m->anchors == NULL) {
    sp_matcher_free(m);
    return NULL;
  }
  for (uint64_t i = 0; i < m->plan.count; i++)
    m->certain = m->load[i] > m->certain ? m->load[i] : m->certain;
  for (uint64_t i = 0; i < m->plan.part_count; i++)
    m->anchors[i] = SP_NOWHERE;
  m->behind = SP_NOWHERE;
  m->scale = SP_NO_SCALE;
  m->one_length = SP_ONE;
  m->at = m->plan.count == 0 ? SP_NOWHERE : 0;
  m->part = sp_sequence_part(&m->plan, 0);
  m->begun = m->plan.parts[0].first == m->plan.parts[0].end;
  return m;
}

void sp_matcher_free(sp_matcher *m) {
  if (m == NULL)
    return;
  sp_layout_drop(m->layout);
  sp_align_free(m->align);
  sp_sequence_drop(&m->plan);
  sp_frees_drop(&m->frees);
  free(m->bound);
  free(m->is_bound);
  free(m->may_be);
  free(m->anchors);
  free(m->origin);
  free(m->load);
  free(m);
}

void sp_matcher_enter(sp_matcher *m) {
  m->part = 1;
  m->at = m->plan.parts[1].first;
  m->adrift = 1;
  m->astray = 1;
  m->begun = 1;
}

void sp_matcher_stiffen(sp_matcher *m, const sp_plan_device *plan) {
  sp_layout_restore(&m->plan, plan);
  sp_layout_drop(m->layout);
  m->layout = NULL;
  m->others.count = 0; /* the keys that they have read say nothing without laws */
}

void sp_matcher_hear(sp_matcher *m, sp_occupied *occupied, void *self) { sp_layout_hear(m->layout, occupied, self); }

uint64_t sp_matcher_bottom(const sp_matcher *m) { return m->layout == NULL ? 0 : sp_layout_bottom(m->layout); }

uint64_t sp_matcher_top(const sp_matcher *m) { return m->layout == NULL ? 0 : sp_layout_top(m->layout); }

uint64_t sp_matcher_room(const sp_matcher *m) { return m->layout == NULL ? 0 : sp_layout_room(m->layout); }

int sp_matcher_settled(const sp_matcher *m) { return m->missed == 0; }

uint64_t sp_matcher_forecast(const sp_matcher *m) { return sp_layout_forecast(m->layout); }

int sp_matcher_under_way(const sp_matcher *m, uint64_t allocated) { return sp_layout_under_way(m->layout, m->at, allocated); }

uint64_t sp_matcher_expected(const sp_matcher *m, uint64_t peak) {
  uint64_t share = sp_layout_share(m->layout);
  if (share == SP_SHARE_ALL)
    return peak;
  uint64_t same = sp_least(m->at_peak, peak), certain = sp_least(m->certain, peak);
  uint64_t scaled = same + (peak - same) / SP_SHARE_ALL * share;
  return scaled > certain ? scaled : certain;
}

int sp_matcher_shares(const sp_matcher *m) { return m->plan.shares; }

uint64_t sp_matcher_pass(const sp_matcher *m) { return m->plan.parts[1].end - m->plan.parts[1].first; }

/* omit notes that the run leaves out the pointer's step, and no more, as it goes on at a choice. Only
 * what the recording had allocated there counts (match_load.h). */
static void omit(sp_matcher *m, const sp_choice *c) {
  if (m->at == SP_NOWHERE || c->at != m->at + 1 || c->part != m->part || c->jumped)
    return;
  const sp_step *step = sp_step_at(m, m->at);
  uint64_t bytes = sp_aligned(step->least), end = step->end;
  if (step->optional || step->varies || !step->placed || bytes <= m->omitted.bytes)
    return;
  if (end == SP_NOWHERE && !step->stays)
    end = m->plan.parts[m->part].end;
  m->omitted = (sp_omission){.at = m->at, .end = end, .pass = m->pass, .bytes = bytes};
}

/* load_at is what the recording had allocated at a step, without the one block that the run has left
 * out: one block says nothing about whether the run is of another job. */
static uint64_t load_at(const sp_matcher *m, uint64_t at) {
  const sp_omission *o = &m->omitted;
  int lacks = o->end == SP_NOWHERE || (o->pass == m->pass && at >= o->at && at < o->end);
  return lacks && m->load[at] > o->bytes ? m->load[at] - o->bytes : m->load[at];
}

/* early says whether the run may be in its first iteration still, in steps of a body: it left the
 * prologue before its end. A first generation of more tokens than the recorded one goes on among
 * those of later iterations. What these had allocated there says nothing about the run, which has no
 * optimizer's state yet, and what it makes once is in the prologue only. */
static int early(const sp_matcher *m) { return !m->begun && m->pass < 2; }

/* take makes a step the answer, and learns its scale and its stream. */
static void take(sp_matcher *m, const sp_choice *c, stplan_stream stream, sp_match *answer) {
  const sp_step *step = sp_step_at(m, c->at);
  int64_t scale = sp_step_scale(step, m->recent.list[SP_GRAM - 1]);
  if (scale != SP_NO_SCALE) {
    int agrees = sp_scales_agree(scale, m->scale);
    if (m->scale != SP_NO_SCALE)
      m->one_length += (agrees * SP_ONE - m->one_length) / MEMORY;
    m->in_a_row = agrees ? m->in_a_row + 1 : 1;
    m->scale = scale;
  }
  if (m->adrift && m->layout != NULL)
    sp_laws_suppose(sp_layout_laws(m->layout), sp_layout_laws(m->layout)->segment_of[c->at]);
  sp_layout_note(m->layout, &m->plan, c->at, m->recent.list[SP_GRAM - 1], m->pass);
  m->bound[step->stream] = stream;
  m->is_bound[step->stream] = 1;
  answer->matched = 1;
  answer->jumped = c->jumped;
  answer->step = c->at;
  answer->placed = step->placed && !c->unsure;
  answer->shared = step->shared;
  answer->stray = !step->placed;
  answer->offset = step->offset;
  answer->size = step->size;
  answer->allocated = c->part > 0 && early(m) ? 0 : load_at(m, c->at);
  m->adrift = 0;
  m->lost = 0;
  m->fitted++;
}

/* Steps. A run that comes from the prologue to a body's first steps, and not to ones further on, has begun
 * another iteration; it may be found only some requests later. */
enum { FIRST_STEPS = 256 };

/* back is the step of the prologue for a choice in a body, if the run is early, came into the midst of
 * it, and the prologue has the same line of the program further on: what the first iteration makes once follows there only. */
static sp_choice back(const sp_matcher *m, const sp_choice *c) {
  if (c->part == 0 || !m->inside || !early(m))
    return *c;
  uint64_t at = m->origin[c->at];
  if (at <= m->reached || at >= m->plan.parts[0].end || !sp_step_fits(sp_step_at(m, at), m->recent.list[SP_GRAM - 1]))
    return *c;
  return (sp_choice){.at = at, .part = 0, .jumped = 1};
}

/* note_key notes the key that the hypothesis which the run goes on from has read. */
static void note_key(sp_matcher *m, uint64_t at) {
  const sp_hypothesis *h = sp_hypotheses_at(&m->others, at);
  if (m->layout == NULL || h == NULL || h->reading == 0 || h->key == at)
    return;
  if (sp_laws_segment(sp_layout_laws(m->layout), at)->key == h->key)
    sp_layout_note(m->layout, &m->plan, h->key, h->reading, m->pass);
}

/* serve takes a step and moves the pointer to the one after it. */
static void serve(sp_matcher *m, const sp_choice *chosen, stplan_stream stream, sp_match *answer) {
  if (m->part == 0 && chosen->part > 0)
    m->inside = chosen->at - m->plan.parts[chosen->part].first >= FIRST_STEPS;
  sp_choice choice = back(m, chosen), *c = &choice;
  omit(m, c);
  m->pass += (uint64_t)c->begun;
  if (c->jumped)
    note_key(m, c->at);
  take(m, c, stream, answer);
  m->part = c->part;
  m->reached = c->part == 0 ? c->at : m->reached;
  m->at = sp_sequence_next(&m->plan, c->at, &m->part);
  if (c->at + 1 == m->plan.parts[c->part].end) {
    m->pass++;
    answer->passed = m->plan.periodic && m->fitted >= SETTLED;
    m->begun |= c->part == 0;
  }
}

/* searches says whether this request raises hypotheses. */
static int searches(sp_matcher *m) {
  uint32_t every = 1;
  while (every < SELDOM && every * PATIENT <= m->lost)
    every *= 2;
  return m->lost++ % every == 0;
}

/* in_body is a hypothesis, or, if it is in the prologue and the run is beyond that, the step of the
 * first body that is the same line of the program. A first iteration is recorded once, so its sizes
 * look as if they never varied, and rows of requests are found there that are found in no body. A run
 * that took its places there would leave those of the body for a whole iteration. What the program
 * does only once, such as making weights, has no such step, and is served where it is found. */
static sp_choice in_body(const sp_matcher *m, const sp_hypothesis *h) {
  sp_choice c = {.at = h->at, .part = h->part, .jumped = 1};
  if (h->part == 0 && m->part > 0 && m->layout != NULL) {
    c.at = sp_layout_laws(m->layout)->twin[h->at];
    c.part = sp_sequence_part(&m->plan, c.at);
  }
  return c;
}

/* drift takes the step of the best hypothesis, or raises hypotheses. */
static void drift(sp_matcher *m, stplan_stream stream, sp_match *answer) {
  answer->drifted = !m->adrift;
  if (!m->adrift)
    sp_hypotheses_discount(&m->others, m->fitted);
  if (m->recent.list[SP_GRAM - 1] > SP_TINY && !sp_hypotheses_go_on(&m->others, m->at))
    sp_layout_doubt(m->layout);
  m->adrift = 1;
  m->fitted = 0;
  m->missed++;
  const sp_hypothesis *best = sp_hypotheses_best(&m->others, m->at, m->part);
  if (best != NULL && best->ratio != 0 && best->ratio != m->ratio) {
    m->ratio_before = m->ratio;
    m->ratio = best->ratio;
  }
  if (best != NULL) {
    sp_choice c = in_body(m, best);
    serve(m, &c, stream, answer);
  } else if (searches(m)) {
    sp_hypotheses_raise(&m->others, m->at, m->part, &m->recent, m->part == 0 || early(m) || m->missed >= ASTRAY);
  } else {
    sp_hypotheses_raise_starts(&m->others, m->recent.list[SP_GRAM - 1]);
  }
}

/* remember adds a request to the last ones. */
static void remember(sp_recent *r, uint64_t requested) {
  memmove(r->list, r->list + 1, (SP_GRAM - 1) * sizeof *r->list);
  r->list[SP_GRAM - 1] = requested;
  r->seen++;
}

/* by_rules takes the step that the rules and the hypotheses find. */
static void by_rules(sp_matcher *m, uint64_t requested, stplan_stream stream, uint64_t ahead, sp_match *answer) {
  uint64_t was = m->at;
  m->others.laws = m->layout == NULL ? NULL : sp_layout_laws(m->layout);
  m->others.pass = m->pass;
  sp_hypotheses_advance(&m->others, requested, m->at, m->one_length >= SP_LENGTH);
  sp_choice c = sp_matcher_choose(m, ahead, requested, stream);
  if (c.at == SP_NOWHERE && m->doubted != SP_NO_DOUBT) {
    answer->drifted = 1;
  } else if (c.at == SP_NOWHERE) {
    drift(m, stream, answer);
  } else if (c.late) {
    if (c.at == m->omitted.at)
      m->omitted = (sp_omission){0}; /* it comes after all */
    take(m, &c, stream, answer);
  } else {
    serve(m, &c, stream, answer);
    if (c.at == was && m->fitted >= SETTLED)
      m->others.count = m->missed = 0;
  }
}

/* begins_pass says whether a step is in another pass than the pointer, which stands at the end of one: its last requests were no steps. The
 * alignment may also go back by some steps, but not by half of a body. */
static int begins_pass(const sp_matcher *m, const sp_choice *c) {
  const sp_part *p = &m->plan.parts[m->part];
  return m->at != SP_NOWHERE && (c->part != m->part || c->at + (p->end - p->first) / 2 < m->at);
}

/* by_alignment takes the step that the alignment finds. */
static void by_alignment(sp_matcher *m, uint64_t requested, stplan_stream stream, sp_match *answer) {
  for (uint64_t i = 0; i < m->plan.stream_count; i++)
    m->may_be[i] = !m->is_bound[i] || m->bound[i] == stream;
  sp_choice c = {0};
  c.at = sp_align_next(m->align, requested, m->may_be, &c.part);
  if (c.at != SP_NOWHERE) {
    c.begun = begins_pass(m, &c);
    m->begun |= c.begun && m->part == 0;
    int passed = c.begun && m->fitted >= SETTLED;
    serve(m, &c, stream, answer);
    answer->passed |= passed;
    m->missed = 0;
  } else {
    answer->drifted = !m->adrift;
    m->adrift = 1;
    m->fitted = 0;
    m->missed++;
  }
  if (sp_align_lost(m->align))
    m->adrift = m->astray = 1;
}

sp_match sp_matcher_next(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  sp_match answer = {0};
  uint64_t was = m->at;
  remember(&m->recent, requested);
  uint64_t ahead = was == SP_NOWHERE ? SP_NOWHERE : sp_frees_request(&m->frees, was, m->pass, !m->adrift);
  if (m->align != NULL && !m->astray)
    by_alignment(m, requested, stream, &answer);
  else
    by_rules(m, requested, stream, ahead, &answer);
  if (m->align != NULL && m->astray && (answer.jumped || m->fitted >= FOUND) && m->at != SP_NOWHERE) {
    m->astray = 0;
    m->others.count = 0;
    sp_align_begin(m->align, m->at, m->part);
  }
  answer.body = m->plan.periodic && m->part > 0;
  answer.ended = !m->plan.periodic && m->at == SP_NOWHERE;
  return answer;
}

void sp_matcher_placed(sp_matcher *m, uint64_t step) {
  uint64_t end = sp_step_at(m, step)->end;
  if (end != SP_NOWHERE)
    sp_frees_expect(&m->frees, end, m->pass);
}

void sp_matcher_freed(sp_matcher *m, uint64_t step) {
  uint64_t end = sp_step_at(m, step)->end;
  if (m->at != SP_NOWHERE && end != SP_NOWHERE)
    sp_frees_note(&m->frees, end, m->at, m->pass);
}

int sp_matcher_hole_while_live(const sp_matcher *m, uint64_t step, uint64_t need, int looks, sp_hole_search *search) {
  uint64_t end = sp_step_at(m, step)->end;
  if (end == SP_NOWHERE)
    return 0;
  *search = (sp_hole_search){.plan = &m->plan, .at = step + 1, .part = sp_sequence_part(&m->plan, step), .steps = end - step - 1, .need = need, .looks = looks};
  return 1;
}

void sp_matcher_hole_for_steps(const sp_matcher *m, uint64_t steps, uint64_t need, int looks, sp_hole_search *search) {
  *search = (sp_hole_search){.plan = &m->plan, .at = m->at, .part = m->part, .steps = steps, .need = need, .looks = looks};
}

void sp_matcher_mark(sp_matcher *m) {
  if (!m->plan.periodic || m->part == 0 || m->at == SP_NOWHERE)
    return;
  uint64_t *anchor = &m->anchors[m->part];
  if (!m->adrift && m->fitted >= SETTLED) {
    *anchor = m->at;
  } else if (*anchor != SP_NOWHERE) {
    m->at = *anchor;
    m->others.count = 0;
    if (m->align != NULL)
      sp_align_begin(m->align, m->at, m->part);
  }
}
