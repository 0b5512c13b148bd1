/* layout.c: places that follow sizes. The skyline and first fit are compared with arrays that are
 * searched from end to end. The places of a plan may not overlap where their steps live at the
 * same time, whatever sizes its keys are asked for.
 *
 *   layout PLAN: a periodic plan whose large sizes vary */
#include <string.h>

#include "../match_layout.h"
#include "../match_skyline.h"
#include "../match_stack.h"

#include "conformance.h"

enum { STEPS = 300, SETS = 2000, BLOCKS = 200, ROUNDS = 40 };

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

/* lowest is the lowest offset for block i among the ones before it. */
static uint64_t lowest(const sp_block *blocks, int i) {
  uint64_t at = blocks[i].floor;
  for (int k = 0; k < i; k++)
    if (together(&blocks[i], &blocks[k]) && blocks[k].offset < at + blocks[i].size && at < blocks[k].offset + blocks[k].size) {
      at = blocks[k].offset + blocks[k].size;
      k = -1;
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
      uint64_t top = sp_stack_fit(&stack, blocks, BLOCKS), most = 0;
      for (int i = 0; i < BLOCKS; i++) {
        DEMAND(blocks[i].offset == lowest(blocks, i));
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

static void layout(const char *path) {
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
  uint64_t at = 0;
  for (uint64_t i = 0; i < of->slot_count; i++)
    if ((sp_plan_slot(of, i).flags & SP_SLOT_ENTERING) == 0)
      DEMAND(s.steps[at++].offset == sp_plan_slot(of, i).offset);
  sp_layout_drop(l);
  sp_sequence_drop(&s);
  stplan_plan_close(plan);
}

int main(int count, char **arguments) {
  DEMAND(count == 2);
  skyline();
  first_fit();
  layout(arguments[1]);
  return 0;
}
