/* match_stack.h: first fit of blocks whose lifetimes are known, for blocks whose sizes are not
 * those that the plan was packed for. */
#ifndef STPLAN_MATCH_STACK_H
#define STPLAN_MATCH_STACK_H

#include <stdint.h>

/* sp_block is live in the steps [from, to), and lies at `floor` or above. */
typedef struct {
  uint64_t from, to, floor, size, offset;
} sp_block;

/* sp_island is bytes [low, high) that nothing else may be put on. */
typedef struct {
  uint64_t low, high;
} sp_island;

/* sp_clear_at is the lowest offset from `offset` on at which `size` bytes meet none of some islands, which are in the order of
 * their addresses and apart. */
uint64_t sp_clear_at(const sp_island *islands, uint32_t count, uint64_t offset, uint64_t size);

/* sp_stack has room for some blocks of a stretch of steps. */
typedef struct {
  uint64_t first, width; /* steps: where it begins, and how many a bucket has */
  uint64_t *begin;       /* of each bucket: its first entry; one more at the end */
  uint64_t *used;        /* of each bucket: entries */
  uint32_t *entries;     /* blocks that are live in a bucket, by offset */
  uint32_t buckets;
} sp_stack;

/* sp_stack_make makes room for blocks of the steps [first, end). 0 without host memory. */
int sp_stack_make(sp_stack *stack, const sp_block *blocks, uint32_t count, uint64_t first, uint64_t end);
void sp_stack_drop(sp_stack *stack);

/* sp_stack_fit gives each block, in their order, the lowest offset at which no earlier one that
 * lives at the same time is in the way, nor an island. It returns the end of the highest one, or UINT64_MAX if it
 * had to look at as many blocks as *looks says, from which it takes those that it looked at. The
 * steps and the number of the blocks are those that the room was made for. It allocates nothing. */
uint64_t sp_stack_fit(sp_stack *stack, sp_block *blocks, uint32_t count, const sp_island *islands, uint32_t island_count, uint64_t *looks);

#endif
