/* streams.h: which stream has to wait for which before it may touch memory.
 *
 * A device counts frees. The count is its clock, and a tick is a reading of it. For each
 * stream that has used some free memory, the memory carries the tick of the free that
 * ended its last use (sp_clock). An event that is recorded on a stream while the clock
 * stands at t covers every use by that stream which ended at t or before. Stream T may
 * touch memory if, for every other stream S, T has waited for an event of S that covers
 * the memory's tick of S. So one wait often serves many reuses, a few events for each
 * stream serve all frees, and the host never asks whether an event has completed. */
#ifndef STPLAN_STREAMS_H
#define STPLAN_STREAMS_H

#include <stdint.h>

#include "prim.h"

/* Streams of a device; requests on further ones are refused. As many as a bit
 * mask of 64 bits has room for. */
enum { SP_STREAMS = 64 };

/* Streams with a tick of their own in sp_clock; further ones share a tick, and
 * may be waited for longer than needed. A tick for each of 64 would make every
 * range half a KiB larger. */
enum { SP_CLOCK = 8 };

/* Events of a stream, recorded in turn. With fewer, old ticks are more often
 * covered by a later event than needed; more take longer to look through. */
enum { SP_STREAM_EVENTS = 32 };

/* sp_clock is when each stream last used some memory, in ticks; 0 for never.
 * Streams from SP_CLOCK on share one tick, the latest, with a mask of those
 * that have used the memory. */
typedef struct {
  uint64_t tick[SP_CLOCK];
  uint64_t rest_tick, rest_mask;
} sp_clock;

void sp_clock_set(sp_clock *c, int stream, uint64_t tick);
void sp_clock_merge(sp_clock *into, const sp_clock *from);
uint64_t sp_clock_of(const sp_clock *c, int stream);

/* sp_mark is an event of a stream. */
typedef struct {
  void *event;
  uint64_t tick; /* that it covers; 0 while it covers nothing */
  int busy;      /* being recorded */
  int awaited;   /* how many are about to wait for it as it stands; until then it is not recorded again */
} sp_mark;

typedef struct {
  uint64_t handle;
  sp_mark marks[SP_STREAM_EVENTS];
  int next;                    /* the mark to record next */
  uint64_t waited[SP_STREAMS]; /* the tick up to which it has waited for each other stream */
} sp_stream;

typedef struct {
  sp_stream *list[SP_STREAMS];
  int count;
  uint64_t now; /* frees so far */
} sp_streams;

/* sp_streams_find is the stream's index, or -1. */
int sp_streams_find(const sp_streams *s, uint64_t handle);

/* sp_stream_make and sp_stream_drop make and destroy a stream's events; they
 * call the driver. A stream that cannot be recorded on is refused, such as one
 * of another device: memory that it had used could never be ordered behind it,
 * nor memory that is merged with that. */
sp_stream *sp_stream_make(const sp_prim *p, uint64_t handle);
void sp_stream_drop(const sp_prim *p, sp_stream *stream);

/* sp_streams_waits says whether a stream has to wait before it may touch memory
 * with this clock. */
int sp_streams_waits(const sp_streams *s, const sp_clock *c, int stream);

/* sp_need is one wait: for stream `on`, up to a tick. */
typedef struct {
  int on;
  int mark;      /* of that stream, to be waited for */
  int record;    /* the mark has to be recorded first */
  uint64_t tick; /* that the mark covers then */
} sp_need;

/* sp_streams_needs lists the waits of a stream before it may touch memory with
 * this clock, and reserves their marks, those to be recorded too. It returns
 * their number, or -1 if a stream has no mark to spare. */
int sp_streams_needs(sp_streams *s, const sp_clock *c, int stream, sp_need needs[SP_STREAMS]);

/* sp_streams_perform makes the stream wait on the device. Called without the lock. Zero
 * is success; if it fails part way, the stream has waited for more than was needed. */
int sp_streams_perform(const sp_streams *s, const sp_prim *p, int stream, const sp_need *needs, int count);

/* sp_streams_record records a reserved mark's event, and says whether it can be waited
 * for. One that is recorded while a capture of its stream begins cannot: it belongs to
 * the graph, and so would any stream that waits for it. Called without the lock. */
int sp_streams_record(const sp_streams *s, const sp_prim *p, const sp_need *need);

/* sp_streams_settle ends the reservation of marks. If the waits were performed, it
 * notes what the marks cover, and what `stream` has waited for; -1 if no stream has. */
void sp_streams_settle(sp_streams *s, int stream, const sp_need *needs, int count, int performed);

/* sp_streams_reserve reserves a mark of the stream, to be recorded at the
 * present tick. 0 if there is none to spare. */
int sp_streams_reserve(sp_streams *s, int stream, sp_need *need);

#endif
