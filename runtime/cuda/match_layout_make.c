/* match_layout_make.c: what lies on what, found once, when a plan is opened. */
#include "match_layout_state.h"

#include <stdlib.h>
#include <string.h>

/* The highest of the places that stay or cross the seam may be islands among those that are found anew: at most ISLANDS
 * pieces of whole granules. Of the bytes from the base to the plan's end they take 1/ISLAND_SHARE at most, and three quarters
 * lie below the lowest island. A place that meets an island lies above it, and the bytes below stay idle: with a third
 * below the lowest island a finetuning moved twice as much. Each place is compared with all islands, so their number bounds the time. */
enum { ISLANDS = 64, ISLAND_SHARE = 64 };

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

/* put_fixed gives a step the lowest place above what lies there while it lives. */
static void put_fixed(const sp_layout *l, sp_skyline *sky, sp_step *step, uint64_t at) {
  sp_layout_place(l, step, sp_layout_clear(l, sp_skyline_top(sky, at, step->end), step->size));
  if (step->size > 0)
    sp_skyline_set(sky, at, step->end, step->offset + step->size, SP_SKYLINE_FIXED);
}

/* gathering notes what a place lies on. */
typedef struct {
  sp_layout *l;
  sp_place_anew *p;
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

/* add_up turns changes at steps into what is live there. */
static void add_up(uint64_t *change, uint64_t count) {
  for (uint64_t i = 1; i <= count; i++)
    change[i] += change[i - 1];
}

/* note_fixed finds the bytes that are live at each step and are found once. */
static void note_fixed(sp_layout *l, const sp_sequence *s) {
  for (uint64_t i = 0; i < s->count; i++) {
    const sp_step *step = &s->steps[i];
    if (!step->placed || step->end == SP_NOWHERE || sp_layout_stretches(&l->laws, step, i))
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
  l->known = calloc(l->laws.segment_count + 1, sizeof *l->known);
  l->live = calloc(s->count + 1, sizeof *l->live);
  l->at_once = calloc(l->laws.segment_count + 1, sizeof *l->at_once);
  int ok = l->stacks != NULL && l->blocks != NULL && l->change != NULL && l->fixed != NULL && l->kept != NULL;
  if (!ok || l->live == NULL || l->known == NULL || l->at_once == NULL || !note_kept(l, s, plan))
    return 0;
  note_fixed(l, s);
  sp_layout_note_recorded(l, s);
  for (uint32_t i = 0; i < l->count; i++) {
    const sp_place_anew *p = &l->places[i];
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
    if (sp_layout_stretches(&l->laws, &s->steps[i], i))
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
      uint64_t from = items[i].step, to = s->steps[from].end, size = s->steps[from].size, end = sp_layout_clear(l, sp_skyline_top(&sky, from, to), size) + size;
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
    sp_place_anew *p = &l->places[i];
    sp_step *step = &s->steps[items[i].step];
    gathering g = {l, p, 1};
    *p = (sp_place_anew){.floor = p->floor, .step = items[i].step, .first = (uint32_t)l->beneath_count};
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

int sp_layout_put(sp_layout *l, sp_sequence *s, const sp_plan_device *plan) {
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
    if (step->placed && step->end != SP_NOWHERE && !sp_layout_stretches(&l->laws, step, i))
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
    sp_layout_settle(l, s, g);
  sp_skyline_drop(&sky);
  free(items);
  free(offsets);
  return ok;
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
      kept[n++] = (sp_island){sp_round_down(slot.offset, SP_LAYOUT_APART), sp_round_up(slot.offset + slot.size, SP_LAYOUT_APART)};
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

/* The islands are the highest of what stays, as many as there may be. */
int sp_layout_find_base(sp_layout *l, const sp_sequence *s, const sp_plan_device *plan) {
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
