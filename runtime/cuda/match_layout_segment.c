/* match_layout_segment.c: the places of a segment, for the sizes of its largest key. */
#include "match_layout_state.h"

/* 1/N of the bytes that are live at a time: places found anew that take more above them, and more
 * than any pass before, are found again by first fit. */
enum { LOOSE = 128 };

/* Blocks that one first fit may look at, at some 2 ns each. Beyond that the places stay as they were
 * stacked. 17,000 places of a job with a loop of 256 tokens take 3 million. It bounds the pause
 * of a request. */
enum { FIT_LOOKS = 1 << 23 };

void sp_layout_place(const sp_layout *l, sp_step *step, uint64_t offset) {
  step->offset = offset;
  if (offset > l->room || step->size > l->room - offset)
    step->offset = step->size = 0;
}

/* sizing is the bytes that a place needs. */
typedef uint64_t sizing(const sp_layout *l, const sp_sequence *s, uint32_t step);

/* reached is the bytes that a place needs for the largest reading of its segment. If laws have failed there it is the
 * plan's own, which may have been made for more than was recorded: for rounds of a loop that few passes have. */
static uint64_t reached(const sp_layout *l, const sp_sequence *s, uint32_t step) {
  uint64_t said = sp_laws_reach(&l->laws, s->steps, step);
  if (s->steps[step].roomy && sp_laws_failed_in(&l->laws, l->laws.segment_of[step]))
    return l->own[step];
  return said == 0 ? s->steps[step].size : said < l->room ? sp_aligned(said) : l->room;
}

/* stack_up puts each place of a segment on those beneath it, and returns the end of the highest. */
static uint64_t stack_up(const sp_layout *l, sp_sequence *s, uint32_t segment) {
  uint64_t top = 0;
  for (uint32_t i = l->places_of[segment]; i < l->places_of[segment + 1]; i++) {
    const sp_place_anew *p = &l->places[i];
    sp_step *step = &s->steps[p->step];
    uint64_t at = p->floor;
    step->size = reached(l, s, p->step);
    for (uint32_t b = p->first; b < p->end; b++) {
      const sp_step *under = &s->steps[l->beneath[b]];
      if (under->offset + under->size > at)
        at = under->offset + under->size;
    }
    at = sp_layout_clear(l, at, step->size);
    step->offset = at < l->room ? at : l->room; /* so that sums stay far below 2^64 */
    if (at + step->size > top)
      top = at + step->size;
  }
  return top;
}

/* recorded is the bytes that a place needs for the largest request of the recording. */
static uint64_t recorded(const sp_layout *l, const sp_sequence *s, uint32_t step) {
  return l->own[step] == 0 ? 0 : sp_aligned(s->steps[step].most);
}

/* load is the most bytes that a segment's places, of these sizes, and what is found once need at a time. *all is
 * likewise with what stays and what crosses the seam. */
static uint64_t load(const sp_layout *l, const sp_sequence *s, uint32_t segment, sizing *size_of, uint64_t *all) {
  const sp_segment *g = &l->laws.segments[segment];
  uint64_t most = 0, live = 0; /* live is modulo 2^64 */
  for (uint32_t i = l->places_of[segment]; i < l->places_of[segment + 1]; i++) {
    uint32_t step = l->places[i].step;
    uint64_t size = size_of(l, s, step);
    l->change[step] += size;
    l->change[s->steps[step].end] -= size;
  }
  *all = 0;
  for (uint64_t i = g->first; i < g->end; i++) {
    live += l->change[i];
    l->change[i] = 0;
    uint64_t here = l->fixed[i] + live;
    most = here > most ? here : most;
    l->live[i] = here + l->kept[i];
    *all = l->live[i] > *all ? l->live[i] : *all;
  }
  l->change[g->end] = 0;
  return most;
}

/* spend takes work from what may be done. */
static void spend(sp_layout *l, uint64_t work) { l->credit -= (int64_t)work; }

/* fit_first finds the places of a segment by first fit, if that takes less than `top`, and
 * returns the end of the highest. */
static uint64_t fit_first(sp_layout *l, sp_sequence *s, uint32_t segment, uint64_t top) {
  uint32_t first = l->places_of[segment], count = l->places_of[segment + 1] - first;
  sp_block *blocks = &l->blocks[first];
  for (uint32_t i = 0; i < count; i++)
    blocks[i].size = s->steps[l->places[first + i].step].size;
  uint64_t looks = FIT_LOOKS, fitted = sp_stack_fit(&l->stacks[segment], blocks, count, l->islands, l->island_count, &looks);
  spend(l, (FIT_LOOKS - looks) / SP_LAYOUT_LOOKS_FOR);
  if (fitted >= top)
    return top;
  for (uint32_t i = 0; i < count; i++)
    s->steps[l->places[first + i].step].offset = blocks[i].offset;
  return fitted;
}

uint64_t sp_layout_work(const sp_layout *l, uint32_t segment) {
  const sp_segment *g = &l->laws.segments[segment];
  uint64_t first = l->places_of[segment], end = l->places_of[segment + 1];
  return g->end - g->first + 2 * (end - first) + (end > first ? l->places[end - 1].end - l->places[first].first : 0);
}

/* A forecast that is not less by that is all that the plan has places for: with micro-batches of any length a run came to
 * reserve 4 % more than it allocates. */
uint64_t sp_layout_as_recorded(const sp_layout *l, uint32_t segment, uint64_t bytes) {
  uint64_t most = l->at_once[segment];
  return most <= l->peak ? bytes : (uint64_t)((double)bytes * (double)l->peak / (double)most);
}

/* foresee forecasts what the segment takes that the run is in, if its key is larger than any before: what another takes
 * shows in what is allocated. Before the run there is no such key. Until laws hold, places are found for the sizes recorded,
 * which a smaller run never has. */
static void foresee(sp_layout *l, uint64_t need) {
  uint32_t segment = l->current;
  if (l->laws.segments[segment].reach <= l->known[segment])
    return;
  need = sp_layout_as_recorded(l, segment, need);
  if ((l->roomy || sp_laws_hold_in(&l->laws, segment)) && need > l->forecast)
    l->forecast = need;
}

void sp_layout_foresee(sp_layout *l, const sp_sequence *s) {
  uint64_t need;
  if (l->laws.segments[l->current].reach == 0)
    return;
  load(l, s, l->current, reached, &need);
  spend(l, sp_layout_work(l, l->current));
  foresee(l, need);
}

void sp_layout_note_recorded(sp_layout *l, const sp_sequence *s) {
  const sp_segment *segments = l->laws.segments;
  uint32_t count = (uint32_t)l->laws.segment_count, g = 0;
  for (uint64_t p = 0; p < s->part_count; p++) {
    uint32_t first = g;
    uint64_t most = 0, here;
    for (; g < count && segments[g].first < s->parts[p].end; g++) {
      load(l, s, g, recorded, &here);
      most = here > most ? here : most;
    }
    for (uint32_t i = first; i < g; i++)
      l->at_once[i] = most;
  }
}

void sp_layout_settle(sp_layout *l, sp_sequence *s, uint32_t segment) {
  uint64_t need, top = stack_up(l, s, segment), least = load(l, s, segment, reached, &need);
  spend(l, sp_layout_work(l, segment));
  if (top > l->highest && top - l->base > least + l->island_bytes + need / LOOSE)
    top = fit_first(l, s, segment, top);
  l->highest = sp_least(top > l->highest ? top : l->highest, l->room);
  foresee(l, need);
  for (uint32_t i = l->places_of[segment]; i < l->places_of[segment + 1]; i++) {
    sp_step *step = &s->steps[l->places[i].step];
    sp_layout_place(l, step, step->offset);
  }
  l->stale[segment] = sp_laws_hold_in(&l->laws, segment) ? 0 : SP_STALE_UNTIL_LAWS_HOLD;
}
