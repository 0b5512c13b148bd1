/* layout.c: places that follow sizes. The skyline and first fit are compared with arrays that are
 * searched from end to end. The places of a plan may not overlap where their steps live at the
 * same time, whatever sizes its keys are asked for, and lie in its room whatever is asked for.
 *
 *   layout PLAN BOTTOM: a periodic plan whose large sizes vary, and where what is placed anew begins, in bytes */
#include <stdlib.h>
#include <string.h>

#include "../match_layout.h"
#include "../match_skyline.h"
#include "../match_stack.h"

#include "conformance.h"

enum { STEPS = 300, SETS = 2000, BLOCKS = 200, ROUNDS = 40, GRANULE = 2 << 20 };

static uint64_t seed = 1;

static uint64_t draw(uint64_t below) {
  seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (seed >> 33) % below;
}

/* seen_owners is what sp_skyline_each has named. */
typedef struct {
  uint32_t list[STEPS];
  int count;
} seen_owners;

static void note(void *context, uint32_t owner) {
  seen_owners *s = context;
  DEMAND(s->count < STEPS);
  s->list[s->count++] = owner;
}

static void skyline(void) {
  uint64_t top[STEPS] = {0};
  uint32_t owner[STEPS];
  sp_skyline sky;
  memset(owner, 0xff, sizeof owner); /* fixed */
  DEMAND(sp_skyline_make(&sky, STEPS));
  for (uint32_t set = 0; set < SETS; set++) {
    uint64_t from = draw(STEPS), to = from + 1 + draw(STEPS - from), most = 0;
    for (uint64_t i = from; i < to; i++)
      most = top[i] > most ? top[i] : most;
    DEMAND(sp_skyline_top(&sky, from, to) == most);
    seen_owners seen = {.count = 0};
    sp_skyline_each(&sky, from, to, note, &seen);
    int at = 0;
    for (uint64_t i = from; i < to; i++) { /* in order, the same one perhaps several times in a row */
      while (seen.list[at] != owner[i])
        DEMAND(++at < seen.count);
    }
    uint64_t height = draw(1000);
    sp_skyline_set(&sky, from, to, height, set);
    for (uint64_t i = from; i < to; i++) {
      top[i] = height;
      owner[i] = set;
    }
  }
  sp_skyline copy;
  DEMAND(sp_skyline_copy(&copy, &sky));
  DEMAND(sp_skyline_top(&copy, 0, STEPS) == sp_skyline_top(&sky, 0, STEPS));
  sp_skyline_drop(&copy);
  sp_skyline_drop(&sky);
}

static int together(const sp_block *a, const sp_block *b) { return a->from < b->to && b->from < a->to; }

/* lowest is the lowest offset for block i among the ones before it, and the islands. */
static uint64_t lowest(const sp_block *blocks, int i, const sp_island *islands, uint32_t count) {
  uint64_t at = blocks[i].floor;
  for (int k = -(int)count; k < i; k++)
    if (k < 0 && islands[-1 - k].low < at + blocks[i].size && at < islands[-1 - k].high) {
      at = islands[-1 - k].high;
      k = -(int)count - 1;
    } else if (k >= 0 && together(&blocks[i], &blocks[k]) && blocks[k].offset < at + blocks[i].size && at < blocks[k].offset + blocks[k].size) {
      at = blocks[k].offset + blocks[k].size;
      k = -(int)count - 1;
    }
  return at;
}

static void first_fit(void) {
  for (int round = 0; round < ROUNDS; round++) {
    sp_block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
      uint64_t from = 50 + draw(STEPS), to = from + 1 + draw(draw(4) == 0 ? 50 + STEPS - from : 8);
      blocks[i] = (sp_block){.from = from, .to = to > 50 + STEPS ? 50 + STEPS : to, .floor = draw(50), .size = 1 + draw(100)};
    }
    sp_stack stack;
    DEMAND(sp_stack_make(&stack, blocks, BLOCKS, 50, 50 + STEPS));
    for (int again = 0; again < 2; again++) {
      uint64_t looks = UINT64_MAX;
      sp_island islands[3];
      uint32_t count = (uint32_t)draw(4);
      for (uint32_t i = 0; i < count; i++)
        islands[i] = (sp_island){200 * i + draw(100), 200 * i + 100 + draw(100)};
      uint64_t top = sp_stack_fit(&stack, blocks, BLOCKS, islands, count, &looks), most = 0;
      for (int i = 0; i < BLOCKS; i++) {
        DEMAND(blocks[i].offset == lowest(blocks, i, islands, count));
        most = blocks[i].offset + blocks[i].size > most ? blocks[i].offset + blocks[i].size : most;
      }
      DEMAND(top == most);
      for (int i = 0; i < BLOCKS; i++)
        blocks[i].size += draw(20);
    }
    sp_stack_drop(&stack);
  }
}

/* apart says whether two steps that live at the same time have no byte in common. What stays
 * lives on in every part. */
static int apart(const sp_sequence *s, uint64_t a, uint64_t b) {
  const sp_step *x = &s->steps[a], *y = &s->steps[b];
  uint64_t end = x->end == SP_NOWHERE ? s->count : x->end;
  return b >= end || x->offset + x->size <= y->offset || y->offset + y->size <= x->offset;
}

static void all_apart(const sp_sequence *s) {
  for (uint64_t a = 0; a < s->count; a++)
    for (uint64_t b = a + 1; b < s->count && s->steps[a].placed; b++)
      DEMAND(!s->steps[b].placed || apart(s, a, b));
}

/* own says whether all steps have the plan's places. */
static int own(const sp_sequence *s, const sp_plan_device *plan) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < plan->slot_count; i++) {
    sp_slot slot = sp_plan_slot(plan, i);
    if (slot.flags & SP_SLOT_ENTERING)
      continue;
    if (s->steps[at].offset != slot.offset || s->steps[at].size != slot.size)
      return 0;
    at++;
  }
  return 1;
}

/* within says whether all places lie in the room. */
static int within(const sp_sequence *s, const sp_layout *l) {
  for (uint64_t i = 0; i < s->count; i++)
    if (s->steps[i].placed && s->steps[i].offset + s->steps[i].size > sp_layout_room(l))
      return 0;
  return 1;
}

/* hostile asks for anything, in any order. */
static void hostile(const sp_plan_device *of) {
  for (int round = 0; round < ROUNDS / 4; round++) {
    sp_sequence s;
    sp_layout *l;
    DEMAND(sp_sequence_make(&s, of) && sp_layout_make(&l, &s, of) && l != NULL);
    for (int i = 0; i < SETS; i++) {
      uint64_t step = draw(s.count), size = (draw(1 << 30) << 33 | draw(1 << 30)) >> draw(64);
      if (draw(3) == 0)
        size = s.steps[step].most + (draw(2) == 0 ? draw(1 << 20) : 0);
      if (draw(4) == 0)
        step = sp_laws_segment(sp_layout_laws(l), step)->key;
      if (step != SP_NOWHERE)
        sp_layout_note(l, &s, step, draw(20) == 0 ? UINT64_MAX - draw(2) : size, (uint64_t)i / (1 + draw(50)));
      DEMAND(sp_layout_top(l) <= sp_layout_room(l));
    }
    DEMAND(within(&s, l));
    sp_layout_drop(l);
    sp_sequence_drop(&s);
  }
}

/* key_of is a key of the prologue, or of what follows it. */
static uint64_t key_of(const sp_laws *laws, const sp_sequence *s, int prologue) {
  for (uint64_t g = 0; g < laws->segment_count; g++)
    if (laws->segments[g].key != SP_NOWHERE && (laws->segments[g].key < s->parts[0].end) == prologue)
      return laws->segments[g].key;
  return SP_NOWHERE;
}

/* keys_alone asks for larger and larger keys, and nothing else. How often the places of a segment
 * are found anew is bounded by the requests. */
static void keys_alone(const sp_plan_device *of) {
  enum { REQUESTS = 10000, PER_REQUEST = 8 };
  sp_sequence s;
  sp_layout *l;
  DEMAND(sp_sequence_make(&s, of) && sp_layout_make(&l, &s, of) && l != NULL);
  sp_laws *laws = sp_layout_laws(l);
  uint64_t times = 0, kept = 0;
  const sp_segment *segment = sp_laws_segment(laws, key_of(laws, &s, 0));
  for (uint64_t i = 1; i <= REQUESTS; i++) {
    uint64_t before = s.steps[segment->key].size;
    sp_layout_note(l, &s, segment->key, s.steps[segment->key].most + 512 * i, i);
    times += s.steps[segment->key].size != before;
    kept += s.steps[segment->key].size == before;
  }
  DEMAND(times > 0 && kept > 0);
  DEMAND(times * (segment->end - segment->first) <= (REQUESTS + s.count) * PER_REQUEST);
  sp_layout_drop(l);
  sp_sequence_drop(&s);
}

/* others is an sp_occupied: blocks lie at the end of the plan, but for some bytes. */
static uint64_t others(void *self, uint64_t top) { return top - *(const uint64_t *)self; }

/* recorded asks for what was recorded, which leaves the plan's places, and then for a larger key,
 * which leaves those only of what stays. The others begin at `bottom`, and above other blocks if there are any. */
static void recorded(const sp_plan_device *of, uint64_t bottom, uint64_t *free) {
  sp_sequence s;
  sp_layout *l;
  uint64_t key = SP_NOWHERE;
  DEMAND(sp_sequence_make(&s, of) && sp_layout_make(&l, &s, of) && l != NULL);
  for (uint64_t i = 0; i < s.count; i++) {
    sp_layout_note(l, &s, i, draw(2) == 0 ? s.steps[i].least : s.steps[i].most, 1);
    if (sp_laws_segment(sp_layout_laws(l), i)->key == i)
      key = i;
  }
  DEMAND(key != SP_NOWHERE && own(&s, of) && sp_layout_bottom(l) == 0 && sp_layout_top(l) == of->arena_bytes);
  if (free != NULL)
    sp_layout_hear(l, others, free);
  sp_layout_note(l, &s, key, s.steps[key].most + 1, 2);
  DEMAND(free != NULL || sp_layout_bottom(l) == bottom);
  DEMAND(free == NULL || (sp_layout_bottom(l) >= of->arena_bytes - *free && sp_layout_bottom(l) < of->arena_bytes + GRANULE));
  DEMAND(sp_layout_top(l) <= sp_layout_room(l) && within(&s, l));
  all_apart(&s);
  sp_sequence before;
  DEMAND(sp_sequence_make(&before, of));
  for (uint64_t i = 0; i < s.count; i++)
    if (s.steps[i].placed && s.steps[i].end == SP_NOWHERE)
      DEMAND(s.steps[i].offset == before.steps[i].offset);
    else
      DEMAND(!s.steps[i].placed || s.steps[i].size == 0 || s.steps[i].offset >= sp_layout_bottom(l));
  sp_sequence_drop(&before);
  sp_layout_drop(l);
  sp_sequence_drop(&s);
}

/* at_the_beginning asks for a key of the prologue of another size: at the beginning that leaves the plan's places, and once
 * the run has been in a body it does not. */
static void at_the_beginning(const sp_plan_device *of, int later) {
  sp_sequence s;
  sp_layout *l;
  DEMAND(sp_sequence_make(&s, of) && sp_layout_make(&l, &s, of) && l != NULL);
  uint64_t first = key_of(sp_layout_laws(l), &s, 1), key = key_of(sp_layout_laws(l), &s, 0);
  DEMAND(first != SP_NOWHERE && key != SP_NOWHERE);
  if (later)
    sp_layout_note(l, &s, key, s.steps[key].least, 1);
  sp_layout_note(l, &s, first, s.steps[first].least / 2, 2);
  DEMAND((sp_layout_bottom(l) == 0) == later);
  sp_layout_drop(l);
  sp_sequence_drop(&s);
}

static void layout(const char *path, uint64_t bottom) {
  stplan_plan *plan;
  char error[256];
  DEMAND(stplan_plan_open(path, &plan, error, sizeof error) == STPLAN_OK);
  const sp_plan_device *of = &plan->devices[0];
  sp_sequence s;
  sp_layout *l;
  DEMAND(sp_sequence_make(&s, of) && sp_layout_make(&l, &s, of) && l != NULL);
  all_apart(&s);
  sp_laws *laws = sp_layout_laws(l);
  int keys = 0;
  for (uint64_t pass = 1; pass <= ROUNDS; pass++)
    for (uint64_t g = 0; g < laws->segment_count; g++) {
      sp_segment segment = laws->segments[g];
      if (segment.key == SP_NOWHERE)
        continue;
      keys++;
      uint64_t size = s.steps[segment.key].most / 4 * (1 + draw(12));
      sp_layout_note(l, &s, segment.key, size, pass);
      all_apart(&s);
      for (uint64_t i = segment.key + 1; i < segment.end; i++) {
        uint64_t said = sp_laws_size(laws, i, pass);
        sp_layout_note(l, &s, i, said > 0 && draw(10) > 0 ? said : 1 + draw(1 << 22), pass);
      }
      DEMAND(sp_layout_top(l) <= sp_layout_room(l));
    }
  DEMAND(keys > 0);
  sp_layout_restore(&s, of);
  DEMAND(own(&s, of));
  sp_layout_drop(l);
  sp_sequence_drop(&s);
  uint64_t free = 1 << 20;
  recorded(of, bottom, NULL);
  recorded(of, bottom, &free);
  at_the_beginning(of, 0);
  at_the_beginning(of, 1);
  hostile(of);
  keys_alone(of);
  stplan_plan_close(plan);
}

int main(int count, char **arguments) {
  DEMAND(count == 3);
  skyline();
  first_fit();
  layout(arguments[1], strtoull(arguments[2], NULL, 10));
  return 0;
}
