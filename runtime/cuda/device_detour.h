/* device_detour.h: places of the plan that lie at other addresses for a while.
 *
 * One small block in the wrong place, which lives for thousands of requests, can be in the way of
 * places of gigabytes. There is memory enough for them, but it lies in two pieces beside the block,
 * and every request that takes it elsewhere takes another one's place. So all places within
 * the bytes of the one that is needed make a detour: they lie at other addresses, at the same distances from each
 * other. Their memory moves there once. It comes back once nothing is in the way any more.
 *
 *      |    block     |        |                    |      places within [low, high)
 *      |----[]--------|        |--------------------|
 *      low         high        at                          are at the same distance behind `at`
 *
 * All offsets are from the beginning of the plan's memory. Everything is called with the lock
 * held and keeps it. */
#ifndef STPLAN_DEVICE_DETOUR_H
#define STPLAN_DEVICE_DETOUR_H

#include "device.h"

/* Detours at a time. Each place that has any is looked up among them. Runs of SFT with one request in
 * a thousand disturbed have at most three. */
enum { SP_DETOURS = 8 };

typedef struct {
  uint64_t low, high, at;
} sp_detour;

/* Its fields are private to device_detour.c, but for count. All zero: there are no addresses for detours. */
typedef struct {
  int count;
  sp_detour list[SP_DETOURS]; /* a later one counts before an earlier one */
  uint64_t base;              /* address of the plan's memory */
  uint64_t unit;              /* bytes of its granules */
  uint64_t least;             /* bytes that a place has at least for a detour */
  uint64_t edge;              /* offset up to which the arena knows the addresses */
  uint64_t first, end;        /* offsets that detours may lead to, */
  uint64_t next;              /* and where one is looked for next */
  uint64_t left, left_end;    /* what places have left and nobody was told of; empty if there is none */
} sp_detours;

/* sp_detours_open says that detours may lead to addresses of [base+edge, base+end), which
 * have no memory. The arena is told of them with the first detour. `shares` says whether steps of the plan share
 * places: then only places that are a good part of it make one. */
void sp_detours_open(sp_detours *t, uint64_t base, uint64_t unit, uint64_t edge, uint64_t end, int shares);

/* sp_detours_place is where a place lies, and sp_detours_home which byte of the plan lies at an offset, or
 * would if the detour took whole granules. */
uint64_t sp_detours_place(const sp_detours *t, uint64_t offset, uint64_t size);
uint64_t sp_detours_home(const sp_detours *t, uint64_t offset);

/* sp_detours_make makes a place lie elsewhere, which is taken where it lies. 0 if there are no
 * addresses for it. It needs a node. */
int sp_detours_make(stplan_device *d, sp_detours *t, uint64_t offset, uint64_t size);

/* sp_detours_return ends the detour of a place if nothing is in its way any more, and nothing
 * lies where it led to. */
void sp_detours_return(stplan_device *d, sp_detours *t, uint64_t offset, uint64_t size);

/* sp_detours_left says which addresses [*low, *high) places have left, if they have since it
 * last said so: the idle memory there is that of the addresses where they lie now. */
int sp_detours_left(sp_detours *t, uint64_t *low, uint64_t *high);

#endif
