#include "match_stack.h"

#include <stdlib.h>
#include <string.h>

/* Buckets of a stack, at most, and entries for each block in all of them together: what lives long
 * has an entry in each. More take more room, fewer look at more blocks. */
enum { BUCKETS = 256, ENTRIES = 32 };

/* Entries that are moved in the time in which one is looked at: two lines of the cache. */
enum { MOVED = 32 };

static uint32_t bucket(const sp_stack *s, uint64_t step) { return (uint32_t)((step - s->first) / s->width); }

/* entries is how many the blocks have. */
static uint64_t entries(const sp_stack *s, const sp_block *blocks, uint32_t count) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < count; i++)
    n += bucket(s, blocks[i].to - 1) - bucket(s, blocks[i].from) + 1;
  return n;
}

int sp_stack_make(sp_stack *s, const sp_block *blocks, uint32_t count, uint64_t first, uint64_t end) {
  *s = (sp_stack){.first = first, .width = (end - first) / BUCKETS + 1};
  while (s->width < end - first && entries(s, blocks, count) > (uint64_t)count * ENTRIES)
    s->width *= 2;
  s->buckets = bucket(s, end) + 1;
  s->begin = calloc((size_t)s->buckets + 1, sizeof *s->begin);
  s->used = calloc((size_t)s->buckets + 1, sizeof *s->used);
  if (s->begin != NULL)
    for (uint32_t i = 0; i < count; i++)
      for (uint32_t b = bucket(s, blocks[i].from); b <= bucket(s, blocks[i].to - 1); b++)
        s->begin[b + 1]++;
  for (uint32_t b = 0; s->begin != NULL && b < s->buckets; b++)
    s->begin[b + 1] += s->begin[b];
  s->entries = s->begin == NULL ? NULL : calloc(s->begin[s->buckets] + 1, sizeof *s->entries);
  if (s->begin != NULL && s->used != NULL && s->entries != NULL)
    return 1;
  sp_stack_drop(s);
  return 0;
}

void sp_stack_drop(sp_stack *s) {
  free(s->begin);
  free(s->used);
  free(s->entries);
  *s = (sp_stack){0};
}

/* push moves an offset up past the blocks of a bucket that are in the way. It looks at no more
 * than *looks of them, and takes those from it. */
static uint64_t push(const sp_stack *s, const sp_block *blocks, const sp_block *of, uint32_t b, uint64_t offset, uint64_t *looks) {
  const uint32_t *entry = s->entries + s->begin[b], *end = entry + s->used[b];
  for (; entry < end && *looks > 0 && blocks[*entry].offset < offset + of->size; entry++) {
    const sp_block *other = &blocks[*entry];
    --*looks;
    if (other->offset + other->size > offset && other->from < of->to && of->from < other->to)
      offset = other->offset + other->size;
  }
  return offset;
}

/* insert puts a block into a bucket, in the order of the offsets. MOVED entries that make room
 * count as one that was looked at. */
static void insert(sp_stack *s, const sp_block *blocks, uint32_t block, uint32_t b, uint64_t *looks) {
  uint32_t *first = s->entries + s->begin[b];
  uint64_t low = 0, high = s->used[b]++;
  uint64_t count = high;
  while (low < high) {
    uint64_t mid = low + (high - low) / 2;
    if (blocks[first[mid]].offset <= blocks[block].offset)
      low = mid + 1;
    else
      high = mid;
  }
  uint64_t cost = (count - low) / MOVED;
  *looks -= cost < *looks ? cost : *looks;
  memmove(first + low + 1, first + low, (count - low) * sizeof *first);
  first[low] = block;
}

uint64_t sp_clear_at(const sp_island *islands, uint32_t count, uint64_t offset, uint64_t size) {
  for (const sp_island *i = islands; i < islands + count && i->low < offset + size; i++)
    if (i->high > offset)
      offset = i->high;
  return offset;
}

uint64_t sp_stack_fit(sp_stack *s, sp_block *blocks, uint32_t count, const sp_island *islands, uint32_t island_count, uint64_t *looks) {
  uint64_t top = 0;
  memset(s->used, 0, s->buckets * sizeof *s->used);
  for (uint32_t i = 0; i < count; i++) {
    sp_block *of = &blocks[i];
    uint32_t first = bucket(s, of->from), last = bucket(s, of->to - 1);
    uint64_t before;
    of->offset = of->floor;
    do { /* pushed up in one bucket, it may be in the way of another */
      before = of->offset;
      for (uint32_t b = first; b <= last; b++)
        of->offset = push(s, blocks, of, b, of->offset, looks);
      of->offset = sp_clear_at(islands, island_count, of->offset, of->size);
    } while (of->offset != before);
    if (*looks == 0)
      return UINT64_MAX;
    for (uint32_t b = first; b <= last; b++)
      insert(s, blocks, i, b, looks);
    if (of->offset + of->size > top)
      top = of->offset + of->size;
  }
  return top;
}
