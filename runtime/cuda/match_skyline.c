#include "match_skyline.h"

#include <stdlib.h>
#include <string.h>

/* node is one of the tree, and the steps [low, high) that it stands for. */
typedef struct {
  uint64_t at, low, high;
} node;

static node left(node n) { return (node){2 * n.at, n.low, n.low + (n.high - n.low) / 2}; }
static node right(node n) { return (node){2 * n.at + 1, n.low + (n.high - n.low) / 2, n.high}; }
static node root(const sp_skyline *sky) { return (node){1, 0, sky->width}; }

int sp_skyline_make(sp_skyline *sky, uint64_t count) {
  *sky = (sp_skyline){.width = 1};
  while (sky->width < count)
    sky->width *= 2;
  sky->top = calloc(2 * sky->width, sizeof *sky->top);
  sky->owner = calloc(2 * sky->width, sizeof *sky->owner);
  sky->uniform = calloc(2 * sky->width, 1);
  if (sky->top == NULL || sky->owner == NULL || sky->uniform == NULL) {
    sp_skyline_drop(sky);
    return 0;
  }
  sky->owner[1] = SP_SKYLINE_FIXED;
  sky->uniform[1] = 1;
  return 1;
}

int sp_skyline_copy(sp_skyline *sky, const sp_skyline *of) {
  if (!sp_skyline_make(sky, of->width))
    return 0;
  memcpy(sky->top, of->top, 2 * of->width * sizeof *of->top);
  memcpy(sky->owner, of->owner, 2 * of->width * sizeof *of->owner);
  memcpy(sky->uniform, of->uniform, 2 * of->width);
  return 1;
}

void sp_skyline_drop(sp_skyline *sky) {
  free(sky->top);
  free(sky->owner);
  free(sky->uniform);
}

static uint64_t top_in(const sp_skyline *sky, node n, uint64_t from, uint64_t to) {
  if (to <= n.low || n.high <= from)
    return 0;
  if (sky->uniform[n.at] || (from <= n.low && n.high <= to))
    return sky->top[n.at];
  uint64_t a = top_in(sky, left(n), from, to), b = top_in(sky, right(n), from, to);
  return a > b ? a : b;
}

uint64_t sp_skyline_top(const sp_skyline *sky, uint64_t from, uint64_t to) { return top_in(sky, root(sky), from, to); }

static void set_all(sp_skyline *sky, node n, uint64_t top, uint32_t owner) {
  sky->top[n.at] = top;
  sky->owner[n.at] = owner;
  sky->uniform[n.at] = 1;
}

static void set_in(sp_skyline *sky, node n, uint64_t from, uint64_t to, uint64_t top, uint32_t owner) {
  if (to <= n.low || n.high <= from)
    return;
  if (from <= n.low && n.high <= to) {
    set_all(sky, n, top, owner);
    return;
  }
  node a = left(n), b = right(n);
  if (sky->uniform[n.at]) {
    set_all(sky, a, sky->top[n.at], sky->owner[n.at]);
    set_all(sky, b, sky->top[n.at], sky->owner[n.at]);
    sky->uniform[n.at] = 0;
  }
  set_in(sky, a, from, to, top, owner);
  set_in(sky, b, from, to, top, owner);
  sky->top[n.at] = sky->top[a.at] > sky->top[b.at] ? sky->top[a.at] : sky->top[b.at];
  if (sky->uniform[a.at] && sky->uniform[b.at] && sky->owner[a.at] == sky->owner[b.at] && sky->top[a.at] == sky->top[b.at])
    set_all(sky, n, sky->top[a.at], sky->owner[a.at]);
}

void sp_skyline_set(sp_skyline *sky, uint64_t from, uint64_t to, uint64_t top, uint32_t owner) {
  set_in(sky, root(sky), from, to, top, owner);
}

static void each_in(const sp_skyline *sky, node n, uint64_t from, uint64_t to, void (*seen)(void *, uint32_t), void *context) {
  if (to <= n.low || n.high <= from)
    return;
  if (sky->uniform[n.at]) {
    seen(context, sky->owner[n.at]);
    return;
  }
  each_in(sky, left(n), from, to, seen, context);
  each_in(sky, right(n), from, to, seen, context);
}

void sp_skyline_each(const sp_skyline *sky, uint64_t from, uint64_t to, void (*seen)(void *context, uint32_t owner), void *context) {
  each_in(sky, root(sky), from, to, seen, context);
}
