/* prim_host.h: the device primitives without a device. Memory is addresses and
 * nothing else; events and waits go into a log. */
#ifndef STPLAN_PRIM_HOST_H
#define STPLAN_PRIM_HOST_H

#include "prim.h"

/* Where memory grows in place it lies in regions side by side: so many, each with
 * addresses for so many times the capacity, less a granule. */
enum { SP_HOST_REGIONS = 8, SP_HOST_SPAN = 4 };

typedef struct {
  uint64_t base;        /* address of the first byte */
  uint64_t capacity;    /* bytes that the device has */
  uint64_t granularity; /* as in sp_prim */
  int partial;          /* grows in place and takes parts back, as virtual memory does */

  int log; /* keep a log of events and waits */
} sp_host_options;

/* sp_host_open makes primitives of a device of its own. 0 where the host has no
 * memory. */
int sp_host_open(const sp_host_options *options, sp_prim *prim);

/* sp_host_drop closes primitives that no device object came to own. */
void sp_host_drop(const sp_prim *prim);

/* What was asked of the device: an event recorded, a wait for one, or that the host
 * waits until all is done. */
typedef struct {
  uint64_t stream;
  uint64_t event; /* numbered from 0 in the order of their making */
  int wait;       /* 0: recorded */
  int host;       /* the host waits, for everything: there is no stream and no event */
} sp_host_entry;

/* sp_host_take moves up to `most` entries, oldest first, out of the log, and
 * returns their number. */
size_t sp_host_take(const sp_prim *prim, sp_host_entry *entries, size_t most);

/* sp_host_capture says that a stream is being captured from now on, or none
 * with UINT64_MAX. */
void sp_host_capture(const sp_prim *prim, uint64_t stream);

#endif
