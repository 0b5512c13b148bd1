#include "plan_check_slots.h"

#include <stdlib.h>

#include "plan_format.h"

/* Flags of a slot: all that the format knows, and those of a slot that crosses the seam. */
enum { FLAGS_KNOWN = 63, CROSSES = SP_SLOT_ENTERING | SP_SLOT_LEAVING };

/* Kinds of a wait: the two reasons (cross-stream 1, pending 2), over the seam, all of them. */
enum { WAIT_REASONS = 3, WAIT_SEAM = 4, WAIT_KNOWN = 7 };

/* span is a phase and what its slots' times may reach. */
typedef struct {
  sp_phase phase;
  uint64_t carry; /* how far after the phase's end a completed end may lie */
} span;

/* span_of is phase i. A recorded plan is taken as one prologue that nothing follows. */
static span span_of(const sp_plan_device *d, uint64_t i) {
  if (d->mode == SP_MODE_RECORDED)
    return (span){{.kind = SP_PROLOGUE, .occurrences = 1, .length = d->events, .slots = d->slot_count}, 0};
  /* A free that is pending as the prologue ends completes in the first body's time. */
  return (span){sp_plan_phase(d, i), sp_plan_phase(d, i == 0 ? 1 : i).length};
}

/* slot_kind, slot_times and slot_bytes are the rule that a slot breaks by itself, or NULL. */
static const char *slot_kind(const sp_plan_device *d, const span *in, const sp_slot *s) {
  uint32_t flags = s->flags;
  if (s->stream >= d->stream_count)
    return "of a stream that the device does not have";
  if ((flags & ~(uint32_t)FLAGS_KNOWN) != 0)
    return "with unknown flags";
  if (d->mode == SP_MODE_RECORDED && (flags & ~(uint32_t)(SP_SLOT_RESIDENT | SP_SLOT_INITIAL)) != 0)
    return "with flags that mode recorded does not have";
  if ((flags & SP_SLOT_SHARES) != 0 && flags != SP_SLOT_SHARES)
    return "that shares its place and has other flags";
  if (in->phase.kind == SP_PROLOGUE &&
      ((flags & (SP_SLOT_ENTERING | SP_SLOT_STRAY)) != 0 ||
       (flags & (SP_SLOT_RESIDENT | SP_SLOT_LEAVING)) == (SP_SLOT_RESIDENT | SP_SLOT_LEAVING)))
    return "with flags that a prologue does not have";
  if (in->phase.kind != SP_PROLOGUE && ((flags & (SP_SLOT_RESIDENT | SP_SLOT_INITIAL)) != 0 || (flags & (flags - 1)) != 0))
    return "with flags that a body does not have";
  if (in->phase.kind == SP_INTERLUDE && (flags & CROSSES) != 0)
    return "that crosses the seam of an interlude";
  if (flags != SP_SLOT_SHARES && ((flags & CROSSES) != 0) != (s->cell != SP_NO_CELL))
    return "that crosses the seam without a cell, or has a cell and does not cross";
  if (s->occurrences > in->phase.occurrences || (s->occurrences == 0 && (flags & SP_SLOT_ENTERING) == 0))
    return "with an impossible number of occurrences";
  return NULL;
}

static const char *slot_times(const sp_plan_device *d, const span *in, const sp_slot *s) {
  uint64_t length = in->phase.length;
  int completed = d->end == SP_END_COMPLETED;
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
    if (s->requested > SP_MAX_NUMBER)
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

/* slot_order is the rule that s breaks by following `before`, or NULL. before
 * is the slot ahead of it in its phase, NULL for the first; of those ahead,
 * `allocations` do not enter. */
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
      return SP_FAULT("slot", i, problem);
    if (s.stream == *used)
      ++*used;
    allocations += (s.flags & SP_SLOT_ENTERING) == 0;
    before = s;
  }
  if (in->phase.kind != SP_PROLOGUE && allocations != in->phase.length)
    return SP_FAULT("slot", end - 1, "is the last of another number of allocations than the body's length");
  return SP_NO_FAULT;
}

sp_fault sp_check_slots(const sp_plan_device *d) {
  uint64_t used = 0, phases = d->mode == SP_MODE_RECORDED ? 1 : d->phase_count;
  for (uint64_t i = 0; i < phases; i++) {
    span in = span_of(d, i);
    sp_fault f = check_phase_slots(d, &in, &used);
    if (f.rule != NULL)
      return f;
  }
  return used < d->stream_count ? SP_FAULT("stream", used, "has no slot") : SP_NO_FAULT;
}

/* shared_place is the rule that slot i, which shares its place, breaks, or NULL.
 * first is the first slot of its phase. A holder has no flags, so it shares no
 * place itself. */
static const char *shared_place(const sp_plan_device *d, uint64_t first, uint64_t i, const sp_slot *s) {
  if (s->cell < first || s->cell >= i)
    return "that shares the place of no earlier slot of its phase";
  sp_slot holder = sp_plan_slot(d, s->cell);
  if (holder.flags != 0)
    return "that shares the place of a slot with flags";
  if (s->stream != holder.stream)
    return "on another stream than the slot whose place it shares";
  return s->offset == holder.offset && s->size == holder.size ? NULL : "in another place than the slot whose place it shares";
}

sp_fault sp_check_places(const sp_plan_device *d) {
  for (uint64_t p = 0; p < d->phase_count; p++) { /* mode recorded has no phases, and nothing shares its place */
    sp_phase phase = sp_plan_phase(d, p);
    for (uint64_t i = phase.first_slot; i < phase.first_slot + phase.slots; i++) {
      sp_slot s = sp_plan_slot(d, i);
      const char *problem = (s.flags & SP_SLOT_SHARES) == 0 ? NULL : shared_place(d, phase.first_slot, i, &s);
      if (problem != NULL)
        return SP_FAULT("slot", i, problem);
    }
  }
  return SP_NO_FAULT;
}

/* cell is what is known of a cell so far: the first slot that has it, and the
 * last phase that fills it. Both count from 1; 0 is none yet. */
typedef struct {
  uint64_t first, filled;
} cell;

/* check_cell is the rule that slot i breaks by having this cell, or NULL.
 * *leaving counts the cells that the phase has filled. */
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
    if ((s.flags & CROSSES) == 0)
      continue;
    const char *problem = s.cell >= count ? "of a cell that the first body does not fill" : check_cell(d, &cells[s.cell], phase, i, &s, &leaving);
    if (problem != NULL)
      return SP_FAULT("slot", i, problem);
  }
  return p.kind == SP_BODY && leaving != count ? SP_FAULT("phase", phase, "does not fill every cell") : SP_NO_FAULT;
}

sp_fault sp_check_cells(const sp_plan_device *d) {
  if (d->mode == SP_MODE_RECORDED)
    return SP_NO_FAULT;
  sp_phase body = sp_plan_phase(d, 1);
  uint64_t count = 0;
  for (uint64_t i = body.first_slot; i < body.first_slot + body.slots; i++)
    count += (sp_plan_slot(d, i).flags & SP_SLOT_LEAVING) != 0;
  cell *cells = calloc(count + 1, sizeof *cells);
  if (cells == NULL)
    return SP_FAULT("slot", 0, "no memory");
  sp_fault f = SP_NO_FAULT;
  for (uint64_t p = 0; f.rule == NULL && p < d->phase_count; p++)
    f = check_phase_cells(d, p, cells, count);
  free(cells);
  return f;
}

/* check_pass is the rule that a pass breaks, or NULL. before is NULL for the
 * first; `begun` is the highest body that a pass has had. */
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

/* count_presence adds a pass's bits to `seen`, the counts of its body's
 * `length` allocations. The answer is the broken rule, or NULL. */
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

/* walk_passes checks the passes. It counts the passes of each phase, and how
 * many passes have each slot. */
static sp_fault walk_passes(const sp_plan_device *d, uint32_t *passes, uint32_t *seen) {
  uint64_t begun = 0, word = 0;
  sp_pass before;
  for (uint64_t i = 0; i < d->pass_count; i++) {
    sp_pass p = sp_plan_pass(d, i);
    const char *problem = check_pass(d, i == 0 ? NULL : &before, &p, begun);
    if (problem != NULL)
      return SP_FAULT("pass", i, problem);
    sp_phase body = sp_plan_phase(d, p.phase);
    uint64_t words = (body.length + 63) / 64;
    if (words > d->presence_count - word)
      return SP_FAULT("pass", i, "with too few words of presence");
    problem = count_presence(d->presence + word * SP_WORD_BYTES, body.length, seen + allocations(&body));
    if (problem != NULL)
      return SP_FAULT("pass", i, problem);
    word += words;
    passes[p.phase]++;
    if (p.phase > begun)
      begun = p.phase;
    before = p;
  }
  return word == d->presence_count ? SP_NO_FAULT : SP_FAULT("presence", word, "is beyond the last pass");
}

static sp_fault compare_counts(const sp_plan_device *d, const uint32_t *passes, const uint32_t *seen) {
  for (uint64_t i = 1; i < d->phase_count; i++) {
    sp_phase p = sp_plan_phase(d, i);
    if (p.occurrences != passes[i])
      return SP_FAULT("phase", i, "has another number of passes than occurrences");
    for (uint64_t k = allocations(&p); k < p.first_slot + p.slots; k++)
      if (sp_plan_slot(d, k).occurrences != seen[k])
        return SP_FAULT("slot", k, "has another number of bits than occurrences");
  }
  return SP_NO_FAULT;
}

sp_fault sp_check_passes(const sp_plan_device *d) {
  if (d->mode == SP_MODE_RECORDED)
    return d->pass_count == 0 && d->presence_count == 0 ? SP_NO_FAULT : SP_FAULT("pass", 0, "in mode recorded");
  uint32_t *passes = calloc(d->phase_count, sizeof *passes), *seen = calloc(d->slot_count, sizeof *seen);
  sp_fault f = SP_FAULT("pass", 0, "no memory");
  if (passes != NULL && seen != NULL)
    f = walk_passes(d, passes, seen);
  if (f.rule == NULL)
    f = compare_counts(d, passes, seen);
  free(passes);
  free(seen);
  return f;
}

/* takes says whether a slot exists and takes bytes over from others: an
 * entering one has them already, a stray has no place, and a shared one is
 * taken over by its holder. */
static int takes(const sp_plan_device *d, uint32_t slot) {
  return slot < d->slot_count && (sp_plan_slot(d, slot).flags & (SP_SLOT_ENTERING | SP_SLOT_STRAY | SP_SLOT_SHARES)) == 0;
}

static const char *check_wait(const sp_plan_device *d, const sp_wait *before, const sp_wait *w) {
  if (!takes(d, w->later) || !takes(d, w->earlier))
    return "of a slot that does not exist, or that takes nothing over";
  if ((w->kind & WAIT_REASONS) == 0 || (w->kind & ~(uint32_t)WAIT_KNOWN) != 0)
    return "of an unknown kind";
  if (before != NULL && (w->later < before->later || (w->later == before->later && w->earlier <= before->earlier)))
    return "out of order";
  uint64_t later = sp_plan_phase_of(d, w->later), earlier = sp_plan_phase_of(d, w->earlier);
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
      return SP_FAULT("wait", i, problem);
    before = w;
  }
  return SP_NO_FAULT;
}
