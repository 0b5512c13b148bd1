#include "match_layout.h"

#include <stdlib.h>
#include <string.h>

#include "match_skyline.h"
#include "match_stack.h"
#include "sizes.h"

/* Places that are found anew may lie in this many times the plan's bytes of addresses, which cost
 * nothing. */
enum { ROOM = 2 };

/* Bytes. The places that are found anew begin at a multiple of it behind what stays, so that they share no granule
 * with that. */
#define APART (UINT64_C(2) << 20)

/* 1/N of the plan's bytes: if the places take more than this above them with the recorded sizes,
 * the plan's places stay for good. Places that are a fifth worse still serve sizes that the plan's
 * have no room for better: SFT's are of the kind. */
enum { WORSE = 4 };

/* 1/N of the plan's bytes: if less than this varies at a time, the plan's places stay, whatever is
 * asked for. When they are left, nearly all that the plan holds moves, and what is gained is places for a little. The
 * first steps of a finetuning on texts that fill their batches are of the kind: only the logits of the tokens
 * that are not masked vary, 1.3 % of the plan. Of jobs whose lengths vary it is 26 % and more. */
enum { FEW = 16 };

/* The highest of the places that stay or cross the seam may be islands among those that are found anew: at most ISLANDS
 * pieces of whole granules. Of the bytes from the base to the plan's end they take 1/ISLAND_SHARE at most, and three quarters
 * lie below the lowest island. A place that meets an island lies above it, and the bytes below stay idle: with a third
 * below the lowest island a finetuning moved twice as much. Each place is compared with all islands, so their number bounds the time. */
enum { ISLANDS = 64, ISLAND_SHARE = 64 };

/* 1/N of the bytes that are live at a time: places found anew that take more above them, and more
 * than any pass before, are found again by first fit. */
enum { LOOSE = 128 };

/* Blocks that one first fit may look at, at some 2 ns each. Beyond that the places stay as they were
 * stacked. 17,000 places of a job with a loop of 256 tokens take 3 million. It bounds the pause
 * of a request. */
enum { FIT_LOOKS = 1 << 23 };

/* Steps, places and what these lie on, WORK of which may be gone through for each request of the
 * run. Finding the places of a whole pass again takes 3 to 5 for each of its requests with first
 * fit, which looks at LOOKS_FOR blocks in the time of one place. It bounds the time over a run:
 * one that asks for larger and larger keys, and nothing else, would have a segment found anew
 * each time. */
enum { WORK = 8, LOOKS_FOR = 16 };

/* place is a step whose place is found anew, and what it lies on: `floor`, and the places
 * beneath[first .. end). */
typedef struct {
  uint64_t floor;
  uint32_t step, first, end;
} place;

/* Whether the places of a segment are to be found again at its next key: since a law has changed,
 * or once laws hold, as they were found for the recorded sizes. */
enum { STALE = 1, UNTIL_LAWS_HOLD = 2 };

/* spot is where a step lies. */
typedef struct {
  uint64_t offset, size;
} spot;

struct sp_layout {
  sp_laws laws;
  spot *anew;    /* of each step, while the run keeps to what was recorded; NULL from then on */
  uint64_t *own; /* bytes of the plan's own places, of each step */
  uint64_t base; /* first offset of what is found anew: behind most of the plan's own places that stay or cross the seam */
  sp_island *islands; /* the others of these, in whole granules */
  uint32_t island_count;
  uint64_t island_bytes;
  sp_occupied *occupied; /* NULL until it is heard */
  void *occupied_by;
  uint64_t arena_bytes; /* the plan's */
  int roomy;      /* the plan was made for larger sizes than were recorded */
  int stays;      /* so little varies that the plan's own places are not left */
  int smaller;    /* a key in the prologue was asked for smaller than recorded, and none came near the largest since */
  int held;       /* laws have held, since places are found anew */
  int64_t credit; /* work that may be done; below 0, what was done ahead */
  place *places; /* by segment, then by the plan's address */
  uint32_t count;
  uint32_t *places_of; /* of each segment: its first place; one more at the end */
  uint32_t *beneath;
  uint64_t beneath_count, beneath_room;
  uint64_t room, highest; /* end of the addresses, and of the highest place so far */
  uint64_t forecast;      /* bytes that segments take whose keys the run has requested */
  sp_stack *stacks;       /* of each segment */
  sp_block *blocks;       /* of each place, for first fit */
  uint64_t *change;       /* of the bytes live at each step, zero between calls */
  uint64_t *fixed;        /* bytes live at each step that are found once */
  uint64_t *kept;         /* and those that stay or cross the seam, at the plan's places */
  uint8_t *stale;         /* of each segment */
};

/* A varying step whose place is found once gets room for larger sizes: this many halves of the plan's size. Room costs
 * addresses, and in a run that has just left the plan's own places it costs memory too, as places above it reach beyond the
 * memory that is there. With 4 halves for large steps finetunings moved up to 2.3 times as much. With 5 quarters one moved a third of what it
 * moves with 3 halves, and another twice as much. */
enum { SMALL_HALVES = 4, LARGE_HALVES = 3 };

/* item is a step with what it is sorted by. */
typedef struct {
  uint64_t offset;
  uint32_t step, segment;
} item;

static int item_order(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->segment != y->segment)
    return x->segment < y->segment ? -1 : 1;
  if (x->offset != y->offset)
    return x->offset < y->offset ? -1 : 1;
  return (x->step > y->step) - (x->step < y->step);
}

/* crosses says whether a step lives beyond its segment. */
static int crosses(const sp_laws *laws, const sp_step *step, uint64_t at) { return step->end > sp_laws_segment(laws, at)->end; }

/* stretches says whether a step's place is found anew in each pass. */
static int stretches(const sp_laws *laws, const sp_step *step, uint64_t at) {
  return step->placed && step->end != SP_NOWHERE && step->most > SP_KEY_LEAST && !crosses(laws, step, at);
}

/* place_at gives a step a place if it lies in the room. Otherwise it has none. */
static void place_at(const sp_layout *l, sp_step *step, uint64_t offset) {
  step->offset = offset;
  if (offset > l->room || step->size > l->room - offset)
    step->offset = step->size = 0;
}

static uint64_t clear_at(const sp_layout *l, uint64_t offset, uint64_t size) { return sp_clear_at(l->islands, l->island_count, offset, size); }

/* put_fixed gives a step the lowest place above what lies there while it lives. */
static void put_fixed(const sp_layout *l, sp_skyline *sky, sp_step *step, uint64_t at) {
  place_at(l, step, clear_at(l, sp_skyline_top(sky, at, step->end), step->size));
  if (step->size > 0)
    sp_skyline_set(sky, at, step->end, step->offset + step->size, SP_SKYLINE_FIXED);
}

/* gathering notes what a place lies on. */
typedef struct {
  sp_layout *l;
  place *p;
  int ok;
} gathering;

static void gather(void *context, uint32_t owner) {
  gathering *g = context;
  sp_layout *l = g->l;
  if (owner == SP_SKYLINE_FIXED)
    return;
  if (l->beneath_count == l->beneath_room) {
    uint64_t room = l->beneath_room * 2 + 1024;
    uint32_t *more = room > UINT32_MAX ? NULL : realloc(l->beneath, room * sizeof *more);
    if (more == NULL) {
      g->ok = 0;
      return;
    }
    l->beneath = more;
    l->beneath_room = room;
  }
  if (l->beneath_count > g->p->first && l->beneath[l->beneath_count - 1] == l->places[owner].step)
    return;
  l->beneath[l->beneath_count++] = l->places[owner].step;
}

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
    const place *p = &l->places[i];
    sp_step *step = &s->steps[p->step];
    uint64_t at = p->floor;
    step->size = reached(l, s, p->step);
    for (uint32_t b = p->first; b < p->end; b++) {
      const sp_step *under = &s->steps[l->beneath[b]];
      if (under->offset + under->size > at)
        at = under->offset + under->size;
    }
    at = clear_at(l, at, step->size);
    step->offset = at < l->room ? at : l->room; /* so that sums stay far below 2^64 */
    if (at + step->size > top)
      top = at + step->size;
  }
  return top;
}

/* load is the most bytes that a segment's places and what is found once need at a time. *all is
 * likewise with what stays and what crosses the seam. */
static uint64_t load(const sp_layout *l, const sp_sequence *s, uint32_t segment, uint64_t *all) {
  const sp_segment *g = &l->laws.segments[segment];
  uint64_t most = 0, live = 0; /* live is modulo 2^64 */
  for (uint32_t i = l->places_of[segment]; i < l->places_of[segment + 1]; i++) {
    uint32_t step = l->places[i].step;
    uint64_t size = reached(l, s, step);
    l->change[step] += size;
    l->change[s->steps[step].end] -= size;
  }
  *all = 0;
  for (uint64_t i = g->first; i < g->end; i++) {
    live += l->change[i];
    l->change[i] = 0;
    uint64_t here = l->fixed[i] + live;
    most = here > most ? here : most;
    *all = here + l->kept[i] > *all ? here + l->kept[i] : *all;
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
  spend(l, (FIT_LOOKS - looks) / LOOKS_FOR);
  if (fitted >= top)
    return top;
  for (uint32_t i = 0; i < count; i++)
    s->steps[l->places[first + i].step].offset = blocks[i].offset;
  return fitted;
}

/* work is what finding a segment's places takes but for first fit. */
static uint64_t work(const sp_layout *l, uint32_t segment) {
  const sp_segment *g = &l->laws.segments[segment];
  uint64_t first = l->places_of[segment], end = l->places_of[segment + 1];
  return g->end - g->first + 2 * (end - first) + (end > first ? l->places[end - 1].end - l->places[first].first : 0);
}

/* foresee adds what a segment takes to the forecast, if the run has requested its key. Until laws
 * hold, places are found for the sizes recorded, which a smaller run never has. */
static void foresee(sp_layout *l, uint32_t segment, uint64_t need) {
  if (l->laws.segments[segment].reach > 0 && (l->roomy || sp_laws_hold_in(&l->laws, segment)) && need > l->forecast)
    l->forecast = need;
}

/* foresee_all does so for every segment, once laws begin to hold: their keys come but once in a
 * pass, and in the first pass of a run that is before anything has shown that laws hold. */
static void foresee_all(sp_layout *l, const sp_sequence *s) {
  for (uint32_t g = 0; g < l->laws.segment_count; g++) {
    uint64_t need;
    if (l->laws.segments[g].reach == 0)
      continue;
    load(l, s, g, &need);
    spend(l, work(l, g));
    foresee(l, g, need);
  }
}

/* settle finds the places of a segment from its sizes. */
static void settle(sp_layout *l, sp_sequence *s, uint32_t segment) {
  uint64_t need, top = stack_up(l, s, segment), least = load(l, s, segment, &need);
  spend(l, work(l, segment));
  if (top > l->highest && top - l->base > least + l->island_bytes + need / LOOSE)
    top = fit_first(l, s, segment, top);
  l->highest = sp_least(top > l->highest ? top : l->highest, l->room);
  foresee(l, segment, need);
  for (uint32_t i = l->places_of[segment]; i < l->places_of[segment + 1]; i++) {
    sp_step *step = &s->steps[l->places[i].step];
    place_at(l, step, step->offset);
  }
  l->stale[segment] = sp_laws_hold_in(&l->laws, segment) ? 0 : UNTIL_LAWS_HOLD;
}

/* add_up turns changes at steps into what is live there. */
static void add_up(uint64_t *change, uint64_t count) {
  for (uint64_t i = 1; i <= count; i++)
    change[i] += change[i - 1];
}

/* note_fixed finds the bytes that are live at each step and are found once. */
static void note_fixed(sp_layout *l, const sp_sequence *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    const sp_step *step = &s->steps[i];
    if (!step->placed || step->end == SP_NOWHERE || stretches(&l->laws, step, i))
      continue;
    l->fixed[i] += l->own[i]; /* modulo 2^64, until it is added up */
    l->fixed[step->end] -= l->own[i];
  }
  add_up(l->fixed, s->count);
}

/* note_kept finds those that stay or cross the seam. A cell counts once, from its first step on.
 * 0 without host memory. */
static int note_kept(sp_layout *l, const sp_sequence *s, const sp_plan_device *plan) {
  uint8_t *seen = calloc(plan->slot_count + 1, 1);
  uint64_t at = 0;
  for (uint64_t i = 0; seen != NULL && i < plan->slot_count; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if (slot.flags & SP_SLOT_ENTERING)
      continue;
    int leaves = (slot.flags & SP_SLOT_LEAVING) != 0;
    if (s->steps[at].placed && (leaves ? !seen[slot.cell] : s->steps[at].stays))
      l->kept[at] += slot.size;
    if (leaves)
      seen[slot.cell] = 1;
    at++;
  }
  add_up(l->kept, s->count);
  int ok = seen != NULL;
  free(seen);
  return ok;
}

/* make_blocks prepares first fit. 0 without host memory. */
static int make_blocks(sp_layout *l, const sp_sequence *s, const sp_plan_device *plan) {
  l->stacks = calloc(l->laws.segment_count + 1, sizeof *l->stacks);
  l->blocks = calloc((size_t)l->count + 1, sizeof *l->blocks);
  l->change = calloc(s->count + 1, sizeof *l->change);
  l->fixed = calloc(s->count + 1, sizeof *l->fixed);
  l->kept = calloc(s->count + 1, sizeof *l->kept);
  if (l->stacks == NULL || l->blocks == NULL || l->change == NULL || l->fixed == NULL || l->kept == NULL || !note_kept(l, s, plan))
    return 0;
  note_fixed(l, s);
  for (uint32_t i = 0; i < l->count; i++) {
    const place *p = &l->places[i];
    l->blocks[i] = (sp_block){.from = p->step, .to = s->steps[p->step].end, .floor = p->floor};
  }
  for (uint32_t g = 0; g < l->laws.segment_count; g++) {
    const sp_segment *of = &l->laws.segments[g];
    if (!sp_stack_make(&l->stacks[g], &l->blocks[l->places_of[g]], l->places_of[g + 1] - l->places_of[g], of->first, of->end))
      return 0;
  }
  return 1;
}

/* The orders in which the places of a segment may be stacked. The plan's own is the best one if the
 * packer had to be good there; in a prologue it has room, and what takes least there is tried. */
typedef enum { BY_PLAN, BY_TWIN, BY_LIFE, BY_SIZE, BY_AREA, ORDERS } ordering;

static uint64_t rank(const sp_layout *l, const sp_sequence *s, uint64_t at, ordering by, const uint64_t *plan_offset) {
  const sp_step *step = &s->steps[at];
  switch (by) {
  case BY_TWIN:
    return plan_offset[l->laws.twin[at]];
  case BY_LIFE:
    return UINT64_MAX - (step->end - at);
  case BY_SIZE:
    return UINT64_MAX - step->size;
  case BY_AREA:
    return UINT64_MAX - (step->size >> SP_ALIGNMENT_BITS) * (step->end - at);
  default:
    return plan_offset[at];
  }
}

/* list_stretching lists what is found anew, by segment, in an order for each. */
static uint32_t list_stretching(const sp_layout *l, const sp_sequence *s, const uint8_t *orders, const uint64_t *plan_offset, item *items) {
  uint32_t n = 0;
  for (uint64_t i = 0; i < s->count; i++) {
    uint32_t segment = l->laws.segment_of[i];
    if (stretches(&l->laws, &s->steps[i], i))
      items[n++] = (item){rank(l, s, i, orders[segment], plan_offset), (uint32_t)i, segment};
  }
  qsort(items, n, sizeof *items, item_order);
  return n;
}

/* choose_orders finds the order for each segment that takes the fewest bytes. 0 without host memory. */
static int choose_orders(const sp_layout *l, const sp_skyline *fixed, const sp_sequence *s, const uint64_t *plan_offset, item *items, uint8_t *orders) {
  uint64_t count = l->laws.segment_count, *least = malloc((count + 1) * sizeof *least), *top = malloc((count + 1) * sizeof *top);
  uint8_t *tried = calloc(count + 1, 1);
  int ok = least != NULL && top != NULL && tried != NULL;
  for (int by = 0; ok && by < ORDERS; by++) {
    sp_skyline sky;
    memset(tried, by, count);
    memset(top, 0, count * sizeof *top);
    ok = sp_skyline_copy(&sky, fixed);
    uint32_t n = ok ? list_stretching(l, s, tried, plan_offset, items) : 0;
    for (uint32_t i = 0; i < n; i++) {
      uint64_t from = items[i].step, to = s->steps[from].end, size = s->steps[from].size, end = clear_at(l, sp_skyline_top(&sky, from, to), size) + size;
      sp_skyline_set(&sky, from, to, end, SP_SKYLINE_FIXED);
      if (end > top[items[i].segment])
        top[items[i].segment] = end;
    }
    if (ok)
      sp_skyline_drop(&sky);
    for (uint64_t g = 0; g < count; g++)
      if (by == 0 || top[g] < least[g]) {
        least[g] = top[g];
        orders[g] = (uint8_t)by;
      }
  }
  free(least);
  free(top);
  free(tried);
  return ok;
}

/* put_stretching finds what lies on what. */
static int put_stretching(sp_layout *l, sp_skyline *sky, sp_sequence *s, const item *items, uint32_t n) {
  uint32_t segment = 0;
  for (uint32_t i = 0; i < n; i++) /* while only what is fixed lies there */
    l->places[i].floor = sp_skyline_top(sky, items[i].step, s->steps[items[i].step].end);
  for (uint32_t i = 0; i < n; i++) {
    for (; segment <= items[i].segment; segment++)
      l->places_of[segment] = i;
    place *p = &l->places[i];
    sp_step *step = &s->steps[items[i].step];
    gathering g = {l, p, 1};
    *p = (place){.floor = p->floor, .step = items[i].step, .first = (uint32_t)l->beneath_count};
    sp_skyline_each(sky, p->step, step->end, gather, &g);
    p->end = (uint32_t)l->beneath_count;
    sp_skyline_set(sky, p->step, step->end, 0, i);
    if (!g.ok)
      return 0;
  }
  for (; segment <= l->laws.segment_count; segment++)
    l->places_of[segment] = n;
  l->count = n;
  return 1;
}

/* put_all finds all places. 0 without host memory. */
static int put_all(sp_layout *l, sp_sequence *s, const sp_plan_device *plan) {
  sp_skyline sky;
  item *items = calloc(s->count + 1, sizeof *items);
  uint64_t *offsets = calloc(s->count + 1, sizeof *offsets); /* the plan's */
  int ok = items != NULL && offsets != NULL && sp_skyline_make(&sky, s->count);
  if (!ok) {
    free(items);
    free(offsets);
    return 0;
  }
  for (uint64_t i = 0; i < s->count; i++)
    offsets[i] = s->steps[i].offset;
  sp_skyline_set(&sky, 0, sky.width, l->base, SP_SKYLINE_FIXED);
  uint32_t n = 0;
  for (uint64_t i = 0; ok && i < s->count; i++) {
    const sp_step *step = &s->steps[i];
    if (step->placed && step->end != SP_NOWHERE && !stretches(&l->laws, step, i))
      items[n++] = (item){step->offset, (uint32_t)i, 0};
  }
  qsort(items, n, sizeof *items, item_order);
  for (uint32_t i = 0; i < n; i++) {
    sp_step *step = &s->steps[items[i].step];
    if (step->varies)
      step->size = sp_aligned(step->size / 2 * (step->most <= SP_KEY_LEAST ? SMALL_HALVES : LARGE_HALVES));
    put_fixed(l, &sky, step, items[i].step);
  }
  uint8_t *orders = calloc(l->laws.segment_count + 1, 1);
  ok = ok && orders != NULL && choose_orders(l, &sky, s, offsets, items, orders);
  ok = ok && put_stretching(l, &sky, s, items, list_stretching(l, s, orders, offsets, items));
  free(orders);
  ok = ok && make_blocks(l, s, plan);
  for (uint32_t g = 0; ok && g < l->laws.segment_count; g++)
    settle(l, s, g);
  sp_skyline_drop(&sky);
  free(items);
  free(offsets);
  return ok;
}

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

/* keeps says whether a slot stays or crosses the seam, so that its place is not found anew. `step` is what it is in
 * the sequence, if it is there. */
static int keeps(const sp_slot *slot, const sp_step *step) {
  return (slot->flags & (SP_SLOT_ENTERING | SP_SLOT_LEAVING)) != 0 || (step->placed && step->end == SP_NOWHERE);
}

static int island_order(const void *a, const void *b) {
  const sp_island *x = a, *y = b;
  return (x->low > y->low) - (x->low < y->low);
}

/* list_kept lists where slots lie that stay or cross the seam, in whole granules, apart from one another. */
static uint32_t list_kept(const sp_sequence *s, const sp_plan_device *plan, sp_island *kept) {
  uint32_t n = 0, merged = 0;
  uint64_t at = 0;
  for (uint64_t i = 0; i < plan->slot_count; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if (keeps(&slot, &s->steps[at]) && slot.size > 0)
      kept[n++] = (sp_island){sp_round_down(slot.offset, APART), sp_round_up(slot.offset + slot.size, APART)};
    at += !(slot.flags & SP_SLOT_ENTERING);
  }
  qsort(kept, n, sizeof *kept, island_order);
  for (uint32_t i = 0; i < n; i++)
    if (merged > 0 && kept[i].low <= kept[merged - 1].high)
      kept[merged - 1].high = kept[i].high > kept[merged - 1].high ? kept[i].high : kept[merged - 1].high;
    else
      kept[merged++] = kept[i];
  return merged;
}

/* find_base finds where places that are found anew begin, and what lies above that and stays: the highest islands, as many as
 * there may be. 0 without host memory. */
static int find_base(sp_layout *l, const sp_sequence *s, const sp_plan_device *plan) {
  sp_island *kept = malloc((plan->slot_count + 1) * sizeof *kept);
  if (kept == NULL)
    return 0;
  uint32_t n = list_kept(s, plan, kept), first = n;
  uint64_t bytes = 0;
  for (uint32_t i = n; i > 0 && n - i < ISLANDS;) {
    i--;
    bytes += kept[i].high - kept[i].low;
    uint64_t from = i > 0 ? kept[i - 1].high : 0, all = plan->arena_bytes - sp_least(from, plan->arena_bytes);
    if (bytes <= all / ISLAND_SHARE && kept[i].low - from >= all / 4 * 3) {
      first = i;
      l->island_bytes = bytes;
    }
  }
  l->base = first > 0 ? kept[first - 1].high : 0;
  l->islands = kept;
  l->island_count = n - first;
  memmove(kept, kept + first, l->island_count * sizeof *kept);
  return 1;
}

/* swap exchanges the steps' places and those kept aside. */
static void swap(sp_layout *l, sp_sequence *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    spot was = {s->steps[i].offset, s->steps[i].size};
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
        l->anew[i] = (spot){0, 0};
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
  uint64_t above = l->occupied == NULL ? 0 : sp_round_up(l->occupied(l->occupied_by, l->arena_bytes), APART);
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
    l->anew[i] = (spot){s->steps[i].offset, s->steps[i].size};
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
    if (!stretches(&l->laws, step, i))
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
    l->room = sp_round_up(plan->arena_bytes * (ROOM + 1), APART);
    l->credit = INT64_MAX; /* what is done here is bounded by the plan */
    l->anew = calloc(s->count + 1, sizeof *l->anew);
    l->own = calloc(s->count + 1, sizeof *l->own);
    l->places = calloc(s->count + 1, sizeof *l->places);
    l->places_of = calloc(l->laws.segment_count + 1, sizeof *l->places_of);
    l->stale = calloc(l->laws.segment_count + 1, 1);
    ok = find_base(l, s, plan) && l->anew != NULL && l->own != NULL && l->places != NULL && l->places_of != NULL && l->stale != NULL;
    if (ok)
      note_own(l, s);
    ok = ok && put_all(l, s, plan);
    if (ok && !worse(l, s)) {
      if ((l->roomy = roomy(l, s)))
        keep_anew(l);
      else
        swap(l, s);
      l->stays = !l->roomy && l->laws.varying < l->arena_bytes / FEW;
      l->credit = (int64_t)s->count * WORK;
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

void sp_layout_note(sp_layout *l, sp_sequence *s, uint64_t step, uint64_t requested, uint64_t pass) {
  if (l == NULL)
    return;
  uint32_t segment = l->laws.segment_of[step];
  if (l->credit < (int64_t)s->count * WORK)
    l->credit += WORK;
  if (sp_laws_note(&l->laws, step, requested, pass))
    l->stale[segment] = STALE;
  if (!l->held && l->anew == NULL && sp_laws_hold(&l->laws)) {
    l->held = 1;
    foresee_all(l, s);
  }
  if (l->laws.segments[segment].key != step)
    return;
  if (step < s->parts[0].end && requested < s->steps[step].least)
    l->smaller = 1;
  else if (step >= s->parts[0].end && requested >= s->steps[step].most / 4 * 3)
    l->smaller = 0;
  if (l->anew != NULL && !l->stays && !recorded(s, step, requested)) {
    clear_of_others(l, s);
    swap(l, s);
    keep_anew(l);
  }
  int stale = l->stale[segment] == STALE || (l->stale[segment] == UNTIL_LAWS_HOLD && sp_laws_hold_in(&l->laws, segment));
  if (l->anew == NULL && stale && l->credit >= (int64_t)work(l, segment))
    settle(l, s, segment);
}

uint64_t sp_layout_forecast(const sp_layout *l) {
  if (l == NULL || !(sp_laws_hold(&l->laws) || (l->roomy && sp_laws_untried(&l->laws))))
    return 0;
  return l->forecast;
}

int sp_layout_smaller(const sp_layout *l) { return l != NULL && l->smaller; }

uint64_t sp_layout_bottom(const sp_layout *l) { return l->anew == NULL ? l->base : 0; }

uint64_t sp_layout_top(const sp_layout *l) { return l->anew == NULL ? l->highest : l->arena_bytes; }

uint64_t sp_layout_room(const sp_layout *l) { return l->room; }
