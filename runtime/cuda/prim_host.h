/* prim_host.h: the device primitives of a simulated device. Memory is addresses
 * and nothing else; events and waits go into a log. As the driver does, it takes and gives whole
 * granules only, and refuses anything else. */
#ifndef STPLAN_PRIM_HOST_H
#define STPLAN_PRIM_HOST_H

#include "prim.h"

/* If memory is virtual, its rooms lie in addresses of this many times the capacity, from the base on. They are
 * never scarce: rooms that go on to grow are few, and those of memory that cannot be waited for, as while a
 * program holds memory, are no larger than it. */
enum { SP_HOST_ADDRESSES = 128 };

/* Times the capacity: the addresses of a room in which memory goes on to grow. */
enum { SP_HOST_ROOM = 3 };

typedef struct {
  uint64_t base;        /* address of the first byte */
  uint64_t capacity;    /* bytes that the device has */
  uint64_t granularity; /* as in sp_prim */
  int partial;          /* memory is virtual: it grows in place, and parts are taken back */
  int log;              /* keep a log of events and waits */
  int known_only;       /* there are no events of the whole device, as with old drivers */
} sp_host_options;

/* sp_host_open makes primitives of a new simulated device. 0 without host memory. */
int sp_host_open(const sp_host_options *options, sp_prim *prim);

/* sp_host_drop closes primitives that no device object owns. */
void sp_host_drop(const sp_prim *prim);

/* What was asked of the device. */
typedef enum {
  SP_HOST_RECORD,  /* to record an event on a stream */
  SP_HOST_WHOLE,   /* to record an event of the whole device; there is no stream */
  SP_HOST_WAIT,    /* that a stream waits for an event */
  SP_HOST_DONE,    /* whether an event is done, and it is; there is no stream */
  SP_HOST_SETTLED, /* that the host waits for everything; there is no stream and no event */
  SP_HOST_CARRIED, /* that memory be at other addresses; there is no stream and no event */
  SP_HOST_KINDS
} sp_host_kind;

typedef struct {
  sp_host_kind kind;
  uint64_t stream;
  uint64_t event; /* numbered from 0, in the order in which events were made */
  uint64_t from, to, bytes; /* of SP_HOST_CARRIED */
} sp_host_entry;

/* sp_host_misplaced is how often memory was asked for at an address within a granule, which no device gives. */
uint64_t sp_host_misplaced(const sp_prim *prim);

/* sp_host_take moves up to `most` entries out of the log, oldest first, and
 * returns their number. */
size_t sp_host_take(const sp_prim *prim, sp_host_entry *entries, size_t most);

/* sp_host_capture has a stream be captured from now on; none if it is UINT64_MAX. */
void sp_host_capture(const sp_prim *prim, uint64_t stream);

/* sp_host_lag has an event be done only after so many later recordings of events, from now
 * on; 0: at once, SP_HOST_STALLED: never. */
#define SP_HOST_STALLED UINT64_MAX
void sp_host_lag(const sp_prim *prim, uint64_t recordings);
/* sp_host_exchange_begins has an exchange with another process be under way on the device from now on: what
 * is recorded behind it is not done before sp_host_exchange_over. It returns the exchange's number. If the
 * host looks again and again at an event that is behind some and does nothing else, they end meanwhile, as the other process
 * goes on too. */
uint64_t sp_host_exchange_begins(const sp_prim *prim);
void sp_host_exchange_over(const sp_prim *prim, uint64_t exchange);
/* sp_host_occupy has another process have this much of the device's memory from now on, as
 * far as there is as much. */
void sp_host_occupy(const sp_prim *prim, uint64_t bytes);

#endif
