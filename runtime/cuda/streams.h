/* streams.h: which stream has to wait for which before it may touch memory.
 *
 * A device counts frees; the count is its clock, and a tick is a reading of it.
 * Free memory carries, for each stream, the tick of the last free that the
 * stream had used it before (sp_clock). An event recorded on a stream when the
 * clock stood at t orders everything that was freed up to t. Stream T may touch
 * memory when, for every other stream S, T has waited for an event of S that
 * covers the memory's tick of S. So one wait often serves many reuses, and a
 * few events for each stream serve all frees: the host never asks whether one
 * has completed. */
#ifndef STPLAN_STREAMS_H
#define STPLAN_STREAMS_H

#include <stdint.h>

#include "prim.h"

enum {
  SP_STREAMS = 64,     /* streams of a device; requests on others are refused */
  SP_CLOCK = 8,        /* streams with a tick of their own in sp_clock */
  SP_STREAM_EVENTS = 32 /* events of a stream, reused in turn */
};

/* sp_clock is when each stream last used some memory: 0 for never. Streams from
 * SP_CLOCK on share one tick, with a mask that says which of them it is of. */
typedef struct {
  uint64_t tick[SP_CLOCK];
  uint64_t rest_tick, rest_mask;
} sp_clock;

void sp_clock_set(sp_clock *c, int stream, uint64_t tick);
void sp_clock_merge(sp_clock *into, const sp_clock *from);
uint64_t sp_clock_of(const sp_clock *c, int stream);

typedef struct {
  void *event;
  uint64_t tick; /* what it covers; 0 while it covers nothing */
  int busy;      /* being recorded */
  int awaited;   /* so many are about to wait for it as it stands: it is not recorded again */
} sp_mark;

typedef struct {
  uint64_t handle;
  sp_mark marks[SP_STREAM_EVENTS];
  int next;                    /* the mark to record next */
  uint64_t waited[SP_STREAMS]; /* tick up to which it has waited for each */
} sp_stream;

typedef struct {
  sp_stream *list[SP_STREAMS];
  int count;
  uint64_t now; /* frees so far */
} sp_streams;

/* sp_streams_find is the stream's index, or -1. */
int sp_streams_find(const sp_streams *s, uint64_t handle);

/* sp_stream_make and sp_stream_drop make and destroy a stream's events; they
 * call the driver. One that cannot be recorded on is refused, as those of other devices:
 * memory that it had used could never be ordered, nor what is merged with that. */
sp_stream *sp_stream_make(const sp_prim *p, uint64_t handle);
void sp_stream_drop(const sp_prim *p, sp_stream *stream);

/* sp_streams_waits says whether stream has to wait before it may touch memory
 * with this clock. */
int sp_streams_waits(const sp_streams *s, const sp_clock *c, int stream);

/* sp_need is one wait: for stream `on`, up to tick. */
typedef struct {
  int on;
  int mark;      /* of the stream, to be waited for */
  int record;    /* the mark has to be recorded first */
  uint64_t tick; /* that the mark covers */
} sp_need;

/* sp_streams_needs lists the waits of `stream` before it may touch memory with
 * this clock and reserves their marks, also those to record. Returns their number, or -1
 * where a stream has no mark to spare. */
int sp_streams_needs(sp_streams *s, const sp_clock *c, int stream, sp_need needs[SP_STREAMS]);

/* sp_streams_perform does them on the device, without the lock. Zero is
 * success; what fails part way has only waited too much. */
int sp_streams_perform(const sp_streams *s, const sp_prim *p, int stream, const sp_need *needs, int count);

/* sp_streams_record records a reserved mark's event, without the lock, and answers
 * whether it can be waited for. One that is recorded while a capture of its stream
 * begins cannot: it belongs to the graph, and so would who waits for it. */
int sp_streams_record(const sp_streams *s, const sp_prim *p, const sp_need *need);

/* sp_streams_settle gives the reserved marks free, and where they were
 * performed notes what they cover and what was waited for. */
void sp_streams_settle(sp_streams *s, int stream, const sp_need *needs, int count, int performed);

/* sp_streams_reserve takes a mark of the stream to record at the present tick.
 * Returns 0 where there is none to spare. */
int sp_streams_reserve(sp_streams *s, int stream, sp_need *need);

#endif
