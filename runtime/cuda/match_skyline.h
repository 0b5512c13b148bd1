/* match_skyline.h: how high places are stacked, and whose are on top, at each step. */
#ifndef STPLAN_MATCH_SKYLINE_H
#define STPLAN_MATCH_SKYLINE_H

#include <stdint.h>

/* The owner of what does not change. */
#define SP_SKYLINE_FIXED UINT32_MAX

/* sp_skyline is a tree over steps. A node whose steps all have one owner and one top says so
 * for all of them. */
typedef struct {
  uint64_t *top;   /* the highest in the node */
  uint32_t *owner; /* of all its steps, if uniform */
  uint8_t *uniform;
  uint64_t width; /* steps, a power of two */
} sp_skyline;

/* sp_skyline_make is for steps 0 to count - 1, all at 0 and fixed. 0 without host memory. */
int sp_skyline_make(sp_skyline *sky, uint64_t count);
int sp_skyline_copy(sp_skyline *sky, const sp_skyline *of);
void sp_skyline_drop(sp_skyline *sky);

/* Of the steps [from, to): the highest top; a new owner and top for all; and each owner,
 * from the first step on, one that lies at several stretches several times. Each
 * takes the logarithm of the steps for every stretch that it ends. */
uint64_t sp_skyline_top(const sp_skyline *sky, uint64_t from, uint64_t to);
void sp_skyline_set(sp_skyline *sky, uint64_t from, uint64_t to, uint64_t top, uint32_t owner);
void sp_skyline_each(const sp_skyline *sky, uint64_t from, uint64_t to, void (*seen)(void *context, uint32_t owner), void *context);

#endif
