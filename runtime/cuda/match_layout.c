#include "match_layout_state.h"

#include <stdlib.h>

/* Places that are found anew may lie in this many times the plan's bytes of addresses, which cost
 * nothing. */
enum { ROOM = 2 };

/* 1/N of the plan's bytes: if the places take more than this above them with the recorded sizes,
 * the plan's places stay for good. Places that are a fifth worse still serve sizes that the plan's
 * have no room for better: SFT's are of the kind. */
enum { WORSE = 4 };

/* 1/N of the plan's bytes: if less than this varies at a time, the plan's places stay, whatever is
 * asked for. When they are left, nearly all that the plan holds moves, and what is gained is places for a little. The
 * first steps of a finetuning on texts that fill their batches are of the kind: only the logits of the tokens
 * that are not masked vary, 1.3 % of the plan. Of jobs whose lengths vary it is 26 % and more. */
enum { FEW = 16 };

/* A run is under way once it is at a step where 1/UNDER_WAY of a forecast is live, beyond what is live at the beginning of its
 * segment, as long as it has allocated what is live there by the laws, but for 1/LACKS. An evaluation may have a larger batch than any
 * step, and keep nothing for a backward pass: such runs came to reserve 8 to 50 % more than they allocate, for places that
 * no step asked for. Until then idle memory moves. Of what is reserved that is 0.30 in a GRPO run without this, 0.43 with a quarter of
 * a forecast and 0.39 with an eighth; and 0.41, 0.79 and 0.50 in a LoRA run by the plan of longer texts. With a twelfth such evaluations
 * reserve 1.12 % more than they allocate on average, with a quarter or an eighth 0.99. */
enum { UNDER_WAY = 8, LACKS = 8 };

/* worse says whether the places take too much more than the plan's do. */
static int worse(const sp_layout *l, const sp_sequence *s) {
  for (uint64_t p = 0; p < s->part_count; p++) {
    uint64_t top = l->base;
    for (uint64_t i = s->parts[p].first; i < s->parts[p].end; i++)
      if (s->steps[i].placed && s->steps[i].offset + s->steps[i].size > top)
        top = s->steps[i].offset + s->steps[i].size;
    if (top - l->base + l->kept[s->count] > l->arena_bytes + l->arena_bytes / WORSE + l->island_bytes)
      return 1;
  }
  return 0;
}

/* swap exchanges the steps' places and those kept aside. */
static void swap(sp_layout *l, sp_sequence *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    sp_spot was = {s->steps[i].offset, s->steps[i].size};
    s->steps[i].offset = l->anew[i].offset;
    s->steps[i].size = l->anew[i].size;
    l->anew[i] = was;
  }
}

/* raise_all moves up all places that are found anew, while they are kept aside, to where there are no islands. */
static void raise_all(sp_layout *l, const sp_sequence *s, uint64_t by) {
  l->island_count = 0;
  l->island_bytes = 0;
  for (uint64_t i = 0; i < s->count; i++)
    if (s->steps[i].placed && s->steps[i].end != SP_NOWHERE && l->anew[i].size > 0) {
      l->anew[i].offset += by;
      if (l->anew[i].offset > l->room || l->anew[i].size > l->room - l->anew[i].offset)
        l->anew[i] = (sp_spot){0, 0};
    }
  for (uint32_t i = 0; i < l->count; i++) {
    l->places[i].floor += by;
    l->blocks[i].floor += by;
  }
  l->base += by;
  l->highest = sp_least(l->highest + by, l->room);
}

/* clear_of_others has what is found anew begin above all blocks that lie elsewhere than at their own places.
 * They may stay for good, like the state of an optimizer that the plan has no places for, and would be in the way
 * of places in every pass. Few runs have such: what is off plan is served by the pool, but if it has no room. */
static void clear_of_others(sp_layout *l, const sp_sequence *s) {
  uint64_t above = l->occupied == NULL ? 0 : sp_round_up(l->occupied(l->occupied_by, l->arena_bytes), SP_LAYOUT_APART);
  if (above > l->base && l->island_count > 0 && above < l->islands[l->island_count - 1].high)
    above = l->islands[l->island_count - 1].high;
  if (above > l->base)
    raise_all(l, s, above - l->base);
}

/* keep_anew has the places found anew served for good. */
static void keep_anew(sp_layout *l) {
  free(l->anew);
  l->anew = NULL;
}

/* note_own notes the plan's own places. */
static void note_own(sp_layout *l, const sp_sequence *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    l->anew[i] = (sp_spot){s->steps[i].offset, s->steps[i].size};
    l->own[i] = s->steps[i].size;
  }
}

void sp_layout_restore(sp_sequence *s, const sp_plan_device *plan) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < plan->slot_count; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if (slot.flags & SP_SLOT_ENTERING)
      continue;
    s->steps[at].offset = slot.offset;
    s->steps[at++].size = slot.size;
  }
  sp_sequence_loosen(s);
}

/* stretched says whether there is anything to find anew. */
static int stretched(const sp_laws *laws) {
  for (uint64_t g = 0; g < laws->segment_count; g++)
    if (laws->segments[g].key != SP_NOWHERE)
      return 1;
  return 0;
}

/* roomy says whether the plan was made for larger sizes than were recorded (`compile --max-scale`,
 * or what rounds that a pass lacks are believed to request), for most bytes of what is found anew. A run then is expected to leave what was
 * recorded. Its places follow its sizes from the first request on, so that nothing has to move
 * when it does; and shorter batches do not lie scattered over the places of the longest. */
static int roomy(const sp_layout *l, const sp_sequence *s) {
  uint64_t all = 0, with_room = 0;
  for (uint64_t i = 0; i < s->count; i++) {
    const sp_step *step = &s->steps[i];
    if (!sp_layout_stretches(&l->laws, step, i))
      continue;
    all += step->most;
    with_room += l->anew[i].size > sp_aligned(step->most) ? step->most : 0;
  }
  return with_room > all / 2;
}

/* Plans of more than SP_LAW_MOST bytes are for no device, and there may be no addresses for their
 * room. */
int sp_layout_make(sp_layout **layout, sp_sequence *s, const sp_plan_device *plan) {
  *layout = NULL;
  if (!s->periodic || s->count >= UINT32_MAX || plan->arena_bytes > SP_LAW_MOST)
    return 1;
  sp_layout *l = calloc(1, sizeof *l);
  if (l == NULL)
    return 0;
  int ok = sp_laws_make(&l->laws, s);
  if (ok && stretched(&l->laws) && sp_laws_likely(&l->laws)) {
    l->arena_bytes = plan->arena_bytes;
    l->peak = sp_plan_peak(plan);
    l->room = sp_round_up(plan->arena_bytes * (ROOM + 1), SP_LAYOUT_APART);
    l->credit = INT64_MAX; /* what is done here is bounded by the plan */
    l->anew = calloc(s->count + 1, sizeof *l->anew);
    l->own = calloc(s->count + 1, sizeof *l->own);
    l->places = calloc(s->count + 1, sizeof *l->places);
    l->places_of = calloc(l->laws.segment_count + 1, sizeof *l->places_of);
    l->stale = calloc(l->laws.segment_count + 1, 1);
    ok = sp_layout_find_base(l, s, plan) && l->anew != NULL && l->own != NULL && l->places != NULL && l->places_of != NULL && l->stale != NULL;
    if (ok)
      note_own(l, s);
    ok = ok && sp_layout_put(l, s, plan);
    if (ok && !worse(l, s)) {
      if ((l->roomy = roomy(l, s)))
        keep_anew(l);
      else
        swap(l, s);
      l->stays = !l->roomy && l->laws.varying < l->arena_bytes / FEW;
      l->credit = (int64_t)s->count * SP_LAYOUT_WORK;
      *layout = l;
      return 1;
    }
  }
  sp_layout_restore(s, plan);
  sp_layout_drop(l);
  return ok;
}

void sp_layout_hear(sp_layout *l, sp_occupied *occupied, void *self) {
  if (l == NULL)
    return;
  l->occupied = occupied;
  l->occupied_by = self;
}

void sp_layout_drop(sp_layout *l) {
  if (l == NULL)
    return;
  for (uint64_t g = 0; l->stacks != NULL && g < l->laws.segment_count; g++)
    sp_stack_drop(&l->stacks[g]);
  free(l->stacks);
  free(l->blocks);
  free(l->change);
  free(l->fixed);
  free(l->kept);
  free(l->live);
  free(l->at_once);
  free(l->known);
  free(l->islands);
  free(l->anew);
  free(l->own);
  sp_laws_drop(&l->laws);
  free(l->places);
  free(l->places_of);
  free(l->beneath);
  free(l->stale);
  free(l);
}

sp_laws *sp_layout_laws(sp_layout *l) { return l == NULL ? NULL : &l->laws; }

/* recorded says whether a key's request keeps to what was recorded, or to what its place was made for. In a prologue
 * that is one size, and the first sign of another run. */
static int recorded(const sp_sequence *s, uint64_t key, uint64_t requested) {
  const sp_step *step = &s->steps[key];
  return (requested <= step->most || sp_step_fits(step, requested)) && (key >= s->parts[0].end || requested >= step->least);
}

/* enter has a segment of a pass be the one that the run is in, or begins it again at its key. What was forecast is over:
 * the run has allocated what that takes by now, or will not. */
static void enter(sp_layout *l, uint32_t segment, uint64_t pass, uint64_t step) {
  if (segment == l->current && pass == l->current_pass && step != l->laws.segments[segment].key)
    return;
  l->known[l->current] = l->laws.segments[l->current].reach;
  l->current = segment;
  l->current_pass = pass;
  l->forecast = 0;
  l->waits = 0;
}

/* note_share notes how large a segment's key was of the largest that was recorded: in the prologue at once, in a body once what follows has
 * confirmed it. What comes from the first on that is smaller than in the prologue counts. */
static void note_share(sp_layout *l, const sp_sequence *s, uint32_t segment, uint64_t step, uint64_t requested) {
  const sp_segment *g = &l->laws.segments[segment];
  int begins = step == g->key && step < s->parts[0].end;
  if (begins && requested < s->steps[step].least)
    l->smaller = 1;
  if (!l->smaller || g->key == SP_NOWHERE || !(begins || sp_laws_confirmed(&l->laws, segment)))
    return;
  uint64_t most = sp_laws_key_most(&l->laws, g), share = g->reading >= most ? SP_SHARE_ALL : g->reading * SP_SHARE_ALL / most;
  if (share > l->share)
    l->share = share;
}

/* of_another says whether some step of a body was recorded with this size and no other. A larger key than was recorded may be
 * such a step's request: an evaluation, which begins as a step does and has been taken for one, has batches of one size. The first
 * iterations, in the prologue, were recorded once each, and say nothing: longer batches than the bodies' may have been among them. */
static int of_another(const sp_sequence *s, uint64_t requested) {
  uint64_t i = s->parts[0].end;
  while (i < s->count && (s->steps[i].least != requested || s->steps[i].most != requested))
    i++;
  return i < s->count;
}

/* leaves notes a step's request, and says whether the run leaves the plan's places with it: a key that was not recorded, or what follows one that
 * may be another step's, once that is as the laws say for it. By its own plan an image classifier moved 0.84 of what it reserves for
 * an evaluation, and moves 0.02 since. If all larger keys are waited for, 43 recordings that have such move 0.92 of what they
 * reserve on average in place of 0.72, and reserve 1.0105 of what they allocate in place of 1.0080. A key of the prologue tells of
 * another run at its beginning only: later the run has been taken for what it was then. */
static int leaves(sp_layout *l, const sp_sequence *s, uint32_t segment, uint64_t step, uint64_t requested) {
  if (step != l->laws.segments[segment].key)
    return l->waits && sp_laws_confirmed(&l->laws, segment);
  int other = !recorded(s, step, requested), first = step < s->parts[0].end;
  l->begun |= !first;
  l->waits = other && !first && of_another(s, requested);
  return other && !l->waits && !(first && l->begun);
}

void sp_layout_note(sp_layout *l, sp_sequence *s, uint64_t step, uint64_t requested, uint64_t pass) {
  if (l == NULL)
    return;
  uint32_t segment = l->laws.segment_of[step];
  if (l->credit < (int64_t)s->count * SP_LAYOUT_WORK)
    l->credit += SP_LAYOUT_WORK;
  enter(l, segment, pass, step);
  if (sp_laws_note(&l->laws, step, requested, pass))
    l->stale[segment] = SP_STALE;
  note_share(l, s, segment, step, requested);
  if (!l->held && l->anew == NULL && sp_laws_hold(&l->laws)) {
    l->held = 1;
    sp_layout_foresee(l, s);
  }
  if (l->anew != NULL && !l->stays && leaves(l, s, segment, step, requested)) {
    clear_of_others(l, s);
    swap(l, s);
    keep_anew(l);
  }
  if (l->laws.segments[segment].key != step)
    return;
  int stale = l->stale[segment] == SP_STALE || (l->stale[segment] == SP_STALE_UNTIL_LAWS_HOLD && sp_laws_hold_in(&l->laws, segment));
  if (l->anew == NULL && stale && l->credit >= (int64_t)sp_layout_work(l, segment))
    sp_layout_settle(l, s, segment);
}

void sp_layout_doubt(sp_layout *l) {
  if (l == NULL || !sp_laws_doubt(&l->laws, l->current))
    return;
  l->stale[l->current] = SP_STALE;
  l->forecast = 0;
}

uint64_t sp_layout_forecast(const sp_layout *l) {
  if (l == NULL || sp_laws_contradicted(&l->laws, l->current))
    return 0;
  return sp_laws_hold(&l->laws) || (l->roomy && sp_laws_untried(&l->laws)) ? l->forecast : 0;
}

int sp_layout_under_way(const sp_layout *l, uint64_t at, uint64_t allocated) {
  if (l == NULL || at == SP_NOWHERE || at == 0 || l->laws.segment_of[at - 1] != l->current)
    return 0;
  uint64_t first = l->laws.segments[l->current].first, before = l->fixed[first] + l->kept[first];
  uint64_t live = sp_layout_as_recorded(l, l->current, l->live[at - 1]), more = l->forecast - sp_least(before, l->forecast);
  return live >= before + more / UNDER_WAY && allocated >= live - live / LACKS;
}

uint64_t sp_layout_share(const sp_layout *l) {
  if (l == NULL || !l->smaller)
    return SP_SHARE_ALL;
  return l->share < SP_SHARE_ALL / 2 ? 0 : l->share;
}

uint64_t sp_layout_bottom(const sp_layout *l) { return l->anew == NULL ? l->base : 0; }

uint64_t sp_layout_top(const sp_layout *l) { return l->anew == NULL ? l->highest : l->arena_bytes; }

uint64_t sp_layout_room(const sp_layout *l) { return l->room; }
