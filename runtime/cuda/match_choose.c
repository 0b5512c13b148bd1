#include "match_choose.h"

/* Optional steps at the pointer that are tried one by one; behind them the next
 * step that is not optional is tried. It bounds the time of a request. */
enum { OPTIONAL = 64 };

/* Requests by which a step that was skipped may still come: the two changed places. */
enum { LATE = 2 };

/* Steps to either side of the pointer that must not be optional for frees to
 * overrule a request that fits: passes that differ in an optional step differ
 * in frees close to it as well. */
enum { FIRM = 3 };

static const sp_choice NO_CHOICE = {.at = SP_NOWHERE};

/* on_stream says whether the run's stream is the plan's at a step, as far as is
 * known. Handles differ from run to run, so they are learnt. */
static int on_stream(const sp_matcher *m, uint64_t at, stplan_stream stream) {
  uint32_t s = sp_step_at(m, at)->stream;
  return !m->is_bound[s] || m->bound[s] == stream;
}

/* may_be says whether a request may be a step's, of a length that was not recorded there. */
static int may_be(const sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  return sp_step_may_fit(sp_step_at(m, at), requested) && on_stream(m, at, stream);
}

/* said is the size of a step by its law, in bytes as requested; 0 if that is not known. */
static uint64_t said(const sp_matcher *m, uint64_t at) {
  return m->layout == NULL ? 0 : sp_laws_size(sp_layout_laws(m->layout), at, m->pass);
}

/* sized says whether a request has a size that was recorded at a step, or that its law says. */
static int sized(const sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  if (at == SP_NOWHERE || !on_stream(m, at, stream))
    return 0;
  if (sp_step_fits(sp_step_at(m, at), requested))
    return 1;
  uint64_t size = said(m, at);
  return size > 0 && sp_laws_near(size, requested);
}

static int fits(const sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  if (sized(m, at, requested, stream))
    return 1;
  if (at == SP_NOWHERE || !on_stream(m, at, stream))
    return 0;
  const sp_step *step = sp_step_at(m, at);
  int in_ratio = sp_step_in_ratio(step, m->ratio, requested) || sp_step_in_ratio(step, m->ratio_before, requested);
  return in_ratio && said(m, at) == 0;
}

/* opens says whether the request may be the key of a segment, at the pointer: it may have
 * another size than was recorded, and tells those of all that follow. */
static int opens(const sp_matcher *m, uint64_t requested, stplan_stream stream) {
  if (m->layout == NULL || m->adrift || m->at == SP_NOWHERE)
    return 0;
  return sp_laws_segment(sp_layout_laws(m->layout), m->at)->key == m->at && may_be(m, m->at, requested, stream);
}

/* repeated says whether a request has the size of the one before it. */
static int repeated(const sp_matcher *m, uint64_t requested) {
  return m->recent.seen > 1 && m->recent.list[SP_GRAM - 2] == requested;
}

/* stretched says whether a request is larger or smaller than any recorded one
 * of a step, by as much as the requests before it were. */
static int stretched(const sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  int one_length = m->one_length >= SP_LENGTH || m->in_a_row >= SP_SAME_LENGTH;
  if (at == SP_NOWHERE || !one_length || m->scale == SP_NO_SCALE || !sp_step_may_fit(sp_step_at(m, at), requested))
    return 0;
  int64_t scale = sp_step_scale(sp_step_at(m, at), requested);
  return scale != SP_NO_SCALE && sp_scales_agree(scale, m->scale) && on_stream(m, at, stream);
}

/* fits_or_stretched says whether a request fits a step by its size or by its scale, at the pointer or behind
 * optional steps: a micro-batch of other images than were recorded was lost at each of these. */
static int fits_or_stretched(const sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  return fits(m, at, requested, stream) || stretched(m, at, requested, stream);
}

/* in_scale says whether a request has the scale of those before it; any has,
 * unless one length has decided the sizes so far. */
static int in_scale(const sp_matcher *m, uint64_t at, uint64_t requested) {
  uint64_t size = said(m, at);
  if (size > 0 && sp_laws_near(size, requested))
    return 1;
  return m->one_length < SP_LENGTH || sp_scales_agree(sp_step_scale(sp_step_at(m, at), requested), m->scale);
}

/* Requests. A request that has the scale of one that was held as few requests ago is of another length, which has begun: between
 * the two there may be some whose sizes do not vary. */
enum { HELD = 8 };

/* in_new_scale says whether a request has the scale of one that was held for it just now. */
static int in_new_scale(const sp_matcher *m, uint64_t at, uint64_t requested) {
  int64_t scale = sp_step_scale(sp_step_at(m, at), requested);
  return m->doubted_since > 0 && m->recent.seen - m->doubted_since <= HELD && scale != SP_NO_SCALE && sp_scales_agree(scale, m->doubted_scale);
}

/* keeps_scale says whether the scale of a request does not speak against the pointer's step. */
static int keeps_scale(const sp_matcher *m, uint64_t requested, stplan_stream stream) {
  return in_scale(m, m->at, requested) || in_new_scale(m, m->at, requested) || opens(m, requested, stream) || sp_step_at(m, m->at)->turns;
}

/* lifetime is for how many steps the plan keeps a step's place. */
static uint64_t lifetime(const sp_matcher *m, uint64_t at) {
  uint64_t end = sp_step_at(m, at)->end;
  return end == SP_NOWHERE ? SP_NOWHERE : end - at;
}

/* firm says whether no step within FIRM of the pointer is optional. */
static int firm(const sp_matcher *m) {
  const sp_part *p = &m->plan.parts[m->part];
  uint64_t from = m->at < p->first + FIRM ? p->first : m->at - FIRM;
  for (uint64_t i = from; i <= m->at + FIRM && i < p->end; i++)
    if (sp_step_at(m, i)->optional)
      return 0;
  return 1;
}

/* by_frees is the step close ahead that the frees since the last request point to. */
static sp_choice by_frees(const sp_matcher *m, uint64_t ahead, int fit, uint64_t requested, stplan_stream stream) {
  if (ahead == SP_NOWHERE || ahead >= m->plan.parts[m->part].end || !sp_frees_trusted(&m->frees))
    return NO_CHOICE;
  return fits(m, ahead, requested, stream) && (!fit || firm(m)) ? (sp_choice){.at = ahead, .part = m->part} : NO_CHOICE;
}

/* by_fork is the step where the run is now if it took the other way at the last
 * fork, and the requests since then fit. If the request fits the pointer too (`fit`), it has to speak for that way. */
static sp_choice by_fork(const sp_matcher *m, int fit) {
  const sp_hypothesis *found = NULL;
  for (int i = 0; i < m->others.count; i++) {
    const sp_hypothesis *h = &m->others.list[i];
    int open = h->fork && h->fitted > 1 && (h->told || !fit) && (h->part == m->part || h->body);
    if (open && sp_frees_due(&m->frees, h->at, m->pass) == 0 && (found == NULL || h->fitted > found->fitted))
      found = h;
  }
  return found == NULL ? NO_CHOICE : (sp_choice){.at = found->at, .part = found->part, .jumped = 1, .begun = found->body};
}

/* after is the step behind the pointer's. */
static sp_choice after(const sp_matcher *m) {
  sp_choice c = {.at = m->at, .part = m->part};
  if (c.at != SP_NOWHERE)
    c.at = sp_sequence_next(&m->plan, c.at, &c.part);
  return c;
}

/* by_scale is the step behind the pointer's, if the request has the same new
 * scale as the one before it, which was held off plan for that. */
static sp_choice by_scale(const sp_matcher *m, uint64_t requested) {
  sp_choice c = after(m);
  if (c.at == SP_NOWHERE || !(sp_step_fits(sp_step_at(m, c.at), requested) || sp_step_may_fit(sp_step_at(m, c.at), requested)))
    return NO_CHOICE;
  int64_t scale = sp_step_scale(sp_step_at(m, c.at), requested);
  return scale != SP_NO_SCALE && sp_scales_agree(scale, m->doubted_scale) ? c : NO_CHOICE;
}

/* beyond is the step behind all optional ones at the pointer, if the request fits it. */
static sp_choice beyond(const sp_matcher *m, uint64_t requested, stplan_stream stream) {
  if (m->at == SP_NOWHERE || !sp_step_at(m, m->at)->optional)
    return NO_CHOICE;
  sp_choice c = {.at = sp_step_at(m, m->at)->beyond, .part = m->part};
  if (c.at == m->plan.parts[m->part].end)
    c.at = sp_sequence_next(&m->plan, c.at - 1, &c.part);
  return fits_or_stretched(m, c.at, requested, stream) ? c : NO_CHOICE;
}

/* Steps. A fork that leads further on leaves a loop: a generation of tokens has optional rounds. */
enum { ROUNDS = 512 };

/* goes_on says whether the run is still in a loop that a fork would leave: the request is not as recorded in this
 * round, but has room in its place. Few passes were recorded as far as that, with longer prompts. What fits
 * behind the loop are its last rounds, where any size was recorded. If the run has left the loop, its next
 * requests do not fit here. */
static int goes_on(const sp_matcher *m, const sp_choice *fork, uint64_t requested, stplan_stream stream) {
  const sp_step *step = m->adrift || m->at == SP_NOWHERE ? NULL : sp_step_at(m, m->at);
  return step != NULL && step->optional && fork->part == m->part && fork->at > m->at + ROUNDS && requested <= step->size &&
         may_be(m, m->at, requested, stream);
}

/* begins says whether the pointer is at the beginning of a body, or, in a body that begins with all
 * of a shorter one, at that one's end, where another body may begin. */
static int begins(const sp_matcher *m) {
  const sp_part *p = &m->plan.parts[m->part];
  return m->part > 0 && (m->at == p->first || (m->at == p->stop && m->at != SP_NOWHERE));
}

/* opening is a step at which a run may be that has come to the end of a body. Each part has two:
 * an even number is where a shorter body ends in it, the odd one after that its beginning. SP_NOWHERE
 * if there is none: behind the end of a shorter body only its own part goes on. */
static uint64_t opening(const sp_matcher *m, uint64_t number) {
  const sp_part *p = &m->plan.parts[number / 2];
  if (number % 2)
    return p->first;
  return m->at == m->plan.parts[m->part].first ? p->stop : SP_NOWHERE;
}

/* note_bodies raises the openings that the request fits, or may be of another length of, other than step `at`: bodies
 * follow one another in any order, and often begin alike. */
static void note_bodies(sp_matcher *m, uint64_t at, uint64_t requested, stplan_stream stream) {
  for (uint64_t n = 2; n < 2 * m->plan.part_count; n++) {
    uint64_t step = opening(m, n);
    if (step == at || step == SP_NOWHERE || !(fits(m, step, requested, stream) || (m->layout != NULL && may_be(m, step, requested, stream))))
      continue;
    m->fitted = 0;
    sp_hypotheses_fork(&m->others, step, n / 2, 1, requested);
  }
}

/* by_body is another opening, the first that fits, if the pointer is at one. If the request may be the
 * pointer's, of a length that was not recorded, it has to have the other one's size: a body that was recorded
 * once has nearly any in some ratio. */
static sp_choice by_body(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  if (m->adrift || !begins(m))
    return NO_CHOICE;
  int here = may_be(m, m->at, requested, stream);
  for (uint64_t n = 2; n < 2 * m->plan.part_count; n++) {
    uint64_t step = opening(m, n);
    if (here ? sized(m, step, requested, stream) : fits(m, step, requested, stream)) {
      note_bodies(m, step, requested, stream);
      return (sp_choice){.at = step, .part = n / 2, .jumped = 1, .begun = m->at != m->plan.parts[m->part].first};
    }
  }
  return NO_CHOICE;
}

/* at_pointer is the pointer's step. If it is optional, and the one behind all optional
 * ones fits as well, that is a fork: of the two, the step whose place is kept longer is
 * taken, since a mistake does no harm there, and the other one becomes a hypothesis. */
static sp_choice at_pointer(sp_matcher *m, int fit, uint64_t requested, stplan_stream stream) {
  sp_choice c = {.at = m->at, .part = m->part}, other = fit ? beyond(m, requested, stream) : NO_CHOICE;
  if (begins(m))
    note_bodies(m, m->at, requested, stream);
  if (other.at == SP_NOWHERE)
    return c;
  if (lifetime(m, other.at) > lifetime(m, c.at)) {
    sp_choice swapped = c;
    c = other;
    other = swapped;
  }
  m->fitted = 0;
  sp_hypotheses_fork(&m->others, other.at, other.part, 0, requested);
  return c;
}

/* past_optional is the first step that fits behind optional ones at the pointer. */
static sp_choice past_optional(const sp_matcher *m, uint64_t requested, stplan_stream stream) {
  sp_choice c = {.at = m->at, .part = m->part};
  for (int i = 0; i < OPTIONAL && c.at != SP_NOWHERE; i++) {
    if (i > 0 && fits_or_stretched(m, c.at, requested, stream))
      return c;
    if (!sp_step_at(m, c.at)->optional)
      return NO_CHOICE;
    c.at = sp_sequence_next(&m->plan, c.at, &c.part);
  }
  return beyond(m, requested, stream);
}

/* late is the step that was skipped just now. Its request may be as long-lived as the one
 * that came instead of it, so its place is used only if it is kept at least as long. */
static sp_choice late(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  if (m->behind == SP_NOWHERE || m->recent.seen - m->behind_since > LATE || !fits(m, m->behind, requested, stream))
    return NO_CHOICE;
  sp_choice c = {.at = m->behind, .late = 1};
  c.unsure = m->at == SP_NOWHERE || m->at == 0 || lifetime(m, c.at) < lifetime(m, m->at - 1);
  m->behind = SP_NOWHERE;
  return c;
}

/* left_out is the step behind the pointer's: a request was left out, or changed places
 * with its successor. Not if the request may be a repetition of the one before. */
static sp_choice left_out(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  sp_choice c = after(m);
  if (repeated(m, requested) || !fits(m, c.at, requested, stream) || !in_scale(m, c.at, requested))
    return NO_CHOICE;
  c.unsure = lifetime(m, c.at) < lifetime(m, m->at);
  m->behind = m->at;
  m->behind_since = m->recent.seen;
  return c;
}

/* by_size is the step of a request that does not fit the pointer. */
static sp_choice by_size(sp_matcher *m, uint64_t requested, stplan_stream stream) {
  sp_choice c = m->adrift ? NO_CHOICE : past_optional(m, requested, stream);
  if (c.at == SP_NOWHERE)
    c = late(m, requested, stream);
  if (c.at == SP_NOWHERE && !m->adrift)
    c = left_out(m, requested, stream);
  return c;
}

sp_choice sp_matcher_choose(sp_matcher *m, uint64_t ahead, uint64_t requested, stplan_stream stream) {
  sp_doubt before = m->doubted;
  m->doubted = SP_NO_DOUBT;
  int fit = fits_or_stretched(m, m->at, requested, stream) || opens(m, requested, stream);
  int early = fit && before == SP_NO_DOUBT && sp_frees_trusted(&m->frees) && sp_frees_due(&m->frees, m->at, m->pass) > 0;
  sp_choice c = by_frees(m, ahead, fit, requested, stream);
  if (c.at != SP_NOWHERE) {
    m->behind = SP_NOWHERE;
    return c;
  }
  if (early && repeated(m, requested) && firm(m)) {
    m->doubted = SP_TOO_EARLY;
    return NO_CHOICE;
  }
  int keeps = fit && keeps_scale(m, requested, stream);
  if ((early || !keeps) && (c = by_fork(m, fit)).at != SP_NOWHERE)
    return !fit && goes_on(m, &c, requested, stream) ? (sp_choice){.at = m->at, .part = m->part} : c;
  if (!fit && (c = by_body(m, requested, stream)).at != SP_NOWHERE)
    return c;
  if (before == SP_OTHER_SCALE && (c = by_scale(m, requested)).at != SP_NOWHERE) {
    m->scale = m->doubted_scale;
    return c;
  }
  if (!fit && (c = by_size(m, requested, stream)).at != SP_NOWHERE)
    return c;
  if (!fit && (m->adrift || m->at == SP_NOWHERE || !may_be(m, m->at, requested, stream)))
    return NO_CHOICE;
  if (keeps || before != SP_NO_DOUBT || (!fit && keeps_scale(m, requested, stream)))
    return at_pointer(m, fit, requested, stream);
  m->doubted = SP_OTHER_SCALE;
  m->doubted_scale = sp_step_scale(sp_step_at(m, m->at), requested);
  m->doubted_since = m->recent.seen;
  return NO_CHOICE;
}
