/* plan_check_slots.c: the rules of docs/planfile.md about slots, cells, passes
 * and waits. */
#include <stdlib.h>

#include "plan_format.h"

#define MAX_NUMBER (UINT64_C(1) << 62)

#define FAULT(what, i, why) ((sp_fault){.record = (what), .index = (i), .rule = (why)})
#define NO_FAULT ((sp_fault){.rule = NULL})

enum { FLAGS_KNOWN = 31, CROSSES = SP_SLOT_ENTERING | SP_SLOT_LEAVING };

enum { WAIT_REASONS = 3, WAIT_SEAM = 4, WAIT_KNOWN = 7 };

/* span is a phase as its slots see it. */
typedef struct {
  sp_phase phase;
  uint64_t carry; /* how far behind its end a completed end may be */
} span;

/* spans gives phase i. A recorded plan is one prologue that nothing follows. */
static span span_of(const sp_plan_device *d, uint64_t i) {
  if (d->mode == SP_MODE_RECORDED)
    return (span){{.kind = SP_PROLOGUE, .occurrences = 1, .length = d->events, .slots = d->slot_count}, 0};
  /* What is pending when the prologue ends is told in the first body's time. */
  return (span){sp_plan_phase(d, i), sp_plan_phase(d, i == 0 ? 1 : i).length};
}

static const char *slot_kind(const sp_plan_device *d, const span *in, const sp_slot *s) {
  uint32_t flags = s->flags;
  if (s->stream >= d->stream_count)
    return "of a stream that the device has not";
  if ((flags & ~(uint32_t)FLAGS_KNOWN) != 0)
    return "with unknown flags";
  if (d->mode == SP_MODE_RECORDED && (flags & ~(uint32_t)(SP_SLOT_RESIDENT | SP_SLOT_INITIAL)) != 0)
    return "with flags that mode recorded has not";
  if (in->phase.kind == SP_PROLOGUE &&
      ((flags & (SP_SLOT_ENTERING | SP_SLOT_STRAY)) != 0 ||
       (flags & (SP_SLOT_RESIDENT | SP_SLOT_LEAVING)) == (SP_SLOT_RESIDENT | SP_SLOT_LEAVING)))
    return "with flags that a prologue has not";
  if (in->phase.kind != SP_PROLOGUE && ((flags & (SP_SLOT_RESIDENT | SP_SLOT_INITIAL)) != 0 || (flags & (flags - 1)) != 0))
    return "with flags that a body has not";
  if (in->phase.kind == SP_INTERLUDE && (flags & CROSSES) != 0)
    return "that crosses the seam of an interlude";
  if (((flags & CROSSES) != 0) != (s->cell != SP_NO_CELL))
    return "that crosses the seam without a cell, or has one and does not";
  if (s->occurrences > in->phase.occurrences || (s->occurrences == 0 && (flags & SP_SLOT_ENTERING) == 0))
    return "with an impossible number of occurrences";
  return NULL;
}

static const char *slot_times(const sp_plan_device *d, const span *in, const sp_slot *s) {
  uint64_t length = in->phase.length;
  int completed = d->end == 2;
  int early = (s->flags & SP_SLOT_ENTERING) != 0 && completed && s->requested_end == 0;
  if (s->requested_end <= s->start && !early)
    return "whose requested end is not after its start";
  if (s->requested_end > length)
    return "whose requested end is after its phase";
  if (s->completed_end < s->requested_end)
    return "whose completed end is before its requested end";
  if (s->completed_end > length + in->carry)
    return "whose completed end is too late";
  if ((s->flags & (SP_SLOT_INITIAL | SP_SLOT_ENTERING)) != 0 && s->start != 0)
    return "that was live before and does not start at 0";
  if ((s->flags & SP_SLOT_RESIDENT) != 0 && (s->requested_end != length || s->completed_end != length))
    return "that is never freed and does not end with its phase";
  if ((s->flags & SP_SLOT_LEAVING) != 0 && s->requested_end != length)
    return "that leaves its phase and ends before";
  if ((s->flags & (SP_SLOT_LEAVING | SP_SLOT_STRAY)) == 0 && completed && (s->completed_end == 0 || s->completed_end > length))
    return "whose completed end is outside its phase";
  return NULL;
}

static const char *slot_bytes(const sp_plan_device *d, const span *in, const sp_slot *s) {
  if ((s->flags & SP_SLOT_STRAY) != 0) {
    if (s->offset != 0 || s->size != 0)
      return "that is a stray and has a place";
    if (s->requested > MAX_NUMBER)
      return "whose request is above 2^62";
  } else {
    if (s->size == 0 || s->size % d->alignment != 0)
      return "whose size is no positive multiple of the alignment";
    if (s->offset % d->alignment != 0)
      return "whose offset is no multiple of the alignment";
    if (s->offset > d->arena_bytes || s->size > d->arena_bytes - s->offset)
      return "beyond the arena";
    if (s->requested > s->size)
      return "smaller than its request";
  }
  if (s->least > s->requested || (in->phase.kind == SP_PROLOGUE && s->least != s->requested))
    return "with an impossible least request";
  return NULL;
}

/* slot_order checks that s may follow the slot before it in its phase, of which
 * `allocations` did not enter. before is NULL of the first. */
static const char *slot_order(const span *in, const sp_slot *before, const sp_slot *s, uint64_t allocations) {
  int entering = (s->flags & SP_SLOT_ENTERING) != 0;
  if (in->phase.kind != SP_PROLOGUE) {
    if (entering && allocations > 0)
      return "that enters, after an allocation";
    if (entering && before != NULL && s->cell <= before->cell)
      return "that enters, not in the order of cells";
    return entering || s->start == allocations ? NULL : "that does not start at the number of allocations before it";
  }
  if (before == NULL || s->start > before->start)
    return NULL;
  if (s->start < before->start)
    return "that starts before its predecessor";
  return (before->flags & SP_SLOT_INITIAL) != 0 ? NULL : "that starts with its predecessor";
}

static sp_fault check_phase_slots(const sp_plan_device *d, const span *in, uint64_t *used) {
  uint64_t allocations = 0, end = in->phase.first_slot + in->phase.slots;
  sp_slot before;
  for (uint64_t i = in->phase.first_slot; i < end; i++) {
    sp_slot s = sp_plan_slot(d, i);
    const char *problem = slot_kind(d, in, &s);
    if (problem == NULL)
      problem = slot_times(d, in, &s);
    if (problem == NULL)
      problem = slot_bytes(d, in, &s);
    if (problem == NULL)
      problem = slot_order(in, i == in->phase.first_slot ? NULL : &before, &s, allocations);
    if (problem == NULL && s.stream > *used)
      problem = "whose stream comes up out of order";
    if (problem != NULL)
      return FAULT("slot", i, problem);
    if (s.stream == *used)
      ++*used;
    allocations += (s.flags & SP_SLOT_ENTERING) == 0;
    before = s;
  }
  if (in->phase.kind != SP_PROLOGUE && allocations != in->phase.length)
    return FAULT("slot", end - 1, "is the last of another number of allocations than the body's length");
  return NO_FAULT;
}

sp_fault sp_check_slots(const sp_plan_device *d) {
  uint64_t used = 0, phases = d->mode == SP_MODE_RECORDED ? 1 : d->phase_count;
  for (uint64_t i = 0; i < phases; i++) {
    span in = span_of(d, i);
    sp_fault f = check_phase_slots(d, &in, &used);
    if (f.rule != NULL)
      return f;
  }
  return used < d->stream_count ? FAULT("stream", used, "has no slot") : NO_FAULT;
}

/* cell is what is known of one: the first slot that has it, and the last phase
 * that fills it, both from 1. */
typedef struct {
  uint64_t first, filled;
} cell;

static const char *check_cell(const sp_plan_device *d, cell *c, uint64_t phase, uint64_t i, const sp_slot *s, uint64_t *leaving) {
  if (c->first == 0)
    c->first = i + 1;
  sp_slot other = sp_plan_slot(d, c->first - 1);
  if (s->offset != other.offset || s->size != other.size)
    return "whose cell has another place in an earlier slot";
  if ((s->flags & SP_SLOT_LEAVING) == 0)
    return NULL;
  if (c->filled == phase + 1)
    return "that fills its cell a second time";
  if (phase == 1 && s->cell != *leaving)
    return "whose cell is not numbered in the order of filling";
  c->filled = phase + 1;
  ++*leaving;
  return NULL;
}

static sp_fault check_phase_cells(const sp_plan_device *d, uint64_t phase, cell *cells, uint64_t count) {
  sp_phase p = sp_plan_phase(d, phase);
  uint64_t leaving = 0;
  for (uint64_t i = p.first_slot; i < p.first_slot + p.slots; i++) {
    sp_slot s = sp_plan_slot(d, i);
    if (s.cell == SP_NO_CELL)
      continue;
    const char *problem = s.cell >= count ? "of a cell that the first body does not fill" : check_cell(d, &cells[s.cell], phase, i, &s, &leaving);
    if (problem != NULL)
      return FAULT("slot", i, problem);
  }
  return p.kind == SP_BODY && leaving != count ? FAULT("phase", phase, "does not fill every cell") : NO_FAULT;
}

sp_fault sp_check_cells(const sp_plan_device *d) {
  if (d->mode == SP_MODE_RECORDED)
    return NO_FAULT;
  sp_phase body = sp_plan_phase(d, 1);
  uint64_t count = 0;
  for (uint64_t i = body.first_slot; i < body.first_slot + body.slots; i++)
    count += (sp_plan_slot(d, i).flags & SP_SLOT_LEAVING) != 0;
  cell *cells = calloc(count + 1, sizeof *cells);
  if (cells == NULL)
    return FAULT("slot", 0, "no memory");
  sp_fault f = NO_FAULT;
  for (uint64_t p = 0; f.rule == NULL && p < d->phase_count; p++)
    f = check_phase_cells(d, p, cells, count);
  free(cells);
  return f;
}

static const char *check_pass(const sp_plan_device *d, const sp_pass *before, const sp_pass *p, uint64_t begun) {
  if (p->zero != 0)
    return "whose last field is not 0";
  if (before == NULL ? p->first_event != d->steady_start : p->first_event <= before->first_event)
    return "that does not begin where the one before ends";
  if (p->first_event >= d->steady_end)
    return "that begins after the steady end";
  if (p->phase == 0 || p->phase >= d->phase_count)
    return "of no body";
  return p->phase > begun + 1 ? "of a body whose predecessor had none" : NULL;
}

/* count_presence adds a pass's bits to the counts of its body's allocations. */
static const char *count_presence(const uint8_t *words, uint64_t length, uint32_t *seen) {
  for (uint64_t k = 0; k < (length + 63) / 64 * 64; k++) {
    if ((sp_le64(words + k / 64 * SP_WORD_BYTES) >> k % 64 & 1) == 0)
      continue;
    if (k >= length)
      return "with a bit beyond its body";
    seen[k]++;
  }
  return NULL;
}

/* allocations is the index of the first slot of a body that does not enter. */
static uint64_t allocations(const sp_phase *p) { return p->first_slot + p->slots - p->length; }

/* walk_passes checks the passes and counts those of each phase, and the bits of
 * each slot. */
static sp_fault walk_passes(const sp_plan_device *d, uint32_t *passes, uint32_t *seen) {
  uint64_t begun = 0, word = 0;
  sp_pass before;
  for (uint64_t i = 0; i < d->pass_count; i++) {
    sp_pass p = sp_plan_pass(d, i);
    const char *problem = check_pass(d, i == 0 ? NULL : &before, &p, begun);
    if (problem != NULL)
      return FAULT("pass", i, problem);
    sp_phase body = sp_plan_phase(d, p.phase);
    uint64_t words = (body.length + 63) / 64;
    if (words > d->presence_count - word)
      return FAULT("pass", i, "with too few words of presence");
    problem = count_presence(d->presence + word * SP_WORD_BYTES, body.length, seen + allocations(&body));
    if (problem != NULL)
      return FAULT("pass", i, problem);
    word += words;
    passes[p.phase]++;
    if (p.phase > begun)
      begun = p.phase;
    before = p;
  }
  return word == d->presence_count ? NO_FAULT : FAULT("presence", word, "is beyond the last pass");
}

static sp_fault compare_counts(const sp_plan_device *d, const uint32_t *passes, const uint32_t *seen) {
  for (uint64_t i = 1; i < d->phase_count; i++) {
    sp_phase p = sp_plan_phase(d, i);
    if (p.occurrences != passes[i])
      return FAULT("phase", i, "has another number of passes than occurrences");
    for (uint64_t k = allocations(&p); k < p.first_slot + p.slots; k++)
      if (sp_plan_slot(d, k).occurrences != seen[k])
        return FAULT("slot", k, "has another number of bits than occurrences");
  }
  return NO_FAULT;
}

sp_fault sp_check_passes(const sp_plan_device *d) {
  if (d->mode == SP_MODE_RECORDED)
    return d->pass_count == 0 && d->presence_count == 0 ? NO_FAULT : FAULT("pass", 0, "in mode recorded");
  uint32_t *passes = calloc(d->phase_count, sizeof *passes), *seen = calloc(d->slot_count, sizeof *seen);
  sp_fault f = FAULT("pass", 0, "no memory");
  if (passes != NULL && seen != NULL)
    f = walk_passes(d, passes, seen);
  if (f.rule == NULL)
    f = compare_counts(d, passes, seen);
  free(passes);
  free(seen);
  return f;
}

/* takes says whether a slot takes bytes over and leaves them to others. */
static int takes(const sp_plan_device *d, uint32_t slot) {
  return slot < d->slot_count && (sp_plan_slot(d, slot).flags & (SP_SLOT_ENTERING | SP_SLOT_STRAY)) == 0;
}

static const char *check_wait(const sp_plan_device *d, const sp_wait *before, const sp_wait *w) {
  if (!takes(d, w->later) || !takes(d, w->earlier))
    return "of a slot that there is not, or that takes nothing over";
  if ((w->kind & WAIT_REASONS) == 0 || (w->kind & ~(uint32_t)WAIT_KNOWN) != 0)
    return "of an unknown kind";
  if (before != NULL && (w->later < before->later || (w->later == before->later && w->earlier <= before->earlier)))
    return "out of order";
  uint64_t later = sp_phase_of(d, w->later), earlier = sp_phase_of(d, w->earlier);
  if ((w->kind & WAIT_SEAM) == 0)
    return later == earlier && w->earlier < w->later ? NULL : "whose earlier slot is not before the later one in its phase";
  if (later == 0 || (earlier != 0 && earlier != later) || (earlier == later && w->earlier < w->later))
    return "over a seam that does not lie between its slots";
  return NULL;
}

sp_fault sp_check_waits(const sp_plan_device *d) {
  sp_wait before;
  for (uint64_t i = 0; i < d->wait_count; i++) {
    sp_wait w = sp_plan_wait(d, i);
    const char *problem = check_wait(d, i == 0 ? NULL : &before, &w);
    if (problem != NULL)
      return FAULT("wait", i, problem);
    before = w;
  }
  return NO_FAULT;
}
