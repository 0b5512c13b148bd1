/* streams.h: which stream has to wait for which before it may touch memory.
 *
 * A device counts frees. The count is its clock, and a tick is a reading of it. Memory
 * that is free carries the ticks of the frees that ended its uses (sp_clock). The stream
 * that a block was allocated on may use its memory again at once, since streams keep
 * their own order, once it has waited for the streams that record_stream named. Any other
 * stream has to wait for everything that any stream of the device had been given by the
 * free: programs let other streams use a block and do not say so, and PyTorch's own
 * allocator forgives them, because it never hands memory from one stream to another
 * without waiting for the device.
 *
 * An event that is recorded on a stream while the clock stands at t covers all that this
 * stream was given before the free of tick t. An event of the whole device does so for
 * every stream of it, also for those that nobody here knows, such as a library's own. So
 * one wait often serves many reuses, and a few events for each stream and for the device
 * serve all frees. If the device has no such events, those of all known streams take
 * their place.
 *
 * An exchange with another process, such as a receive, may wait for what that process
 * does later, which may wait for what this one does later. If a stream waited for an
 * event behind such an exchange, or the host did, all of them could wait for each other
 * for ever. So while an exchange is under way (sp_streams_begin), only events that
 * were recorded before it are waited for. It counts as under way before it is enqueued: other
 * threads may record events at any time, and from then on these are behind it. There are two
 * ways out. A stream that the program itself has made wait for the exchange may wait for
 * events behind it: it does so anyway (sp_streams_awaited). And what the device has done by
 * now need not be waited for at all:
 * events that have completed say up to which tick that is (done). The last event before an
 * exchange is kept until the program awaits it, as a program that always posts its next
 * receive before it awaits the last one leaves no other that could be waited for. */
#ifndef STPLAN_STREAMS_H
#define STPLAN_STREAMS_H

#include <pthread.h>
#include <stdint.h>

#include "prim.h"

/* Streams of a device; requests on further ones are refused. As many as a bit
 * mask of 64 bits has room for. */
enum { SP_STREAMS = 64 };

/* The whole device, as the index of what is waited for. */
enum { SP_WHOLE = SP_STREAMS, SP_SOURCES };

/* Streams with a tick of their own in sp_clock; further ones share a tick, and
 * may be waited for longer than needed. A tick for each of 64 would make every
 * range half a KiB larger. */
enum { SP_CLOCK = 5 };

/* Events of a stream or of the device, recorded in turn. With fewer, old ticks are more often
 * covered by a later event than needed; more take longer to look through. */
enum { SP_STREAM_EVENTS = 32 };

/* sp_clock is when some memory was used last, in ticks; 0 for never. `owner` is the
 * stream of the block that was freed last, at `owned`, and `others` when a block of
 * another stream was freed last. The rest are uses by streams that record_stream named:
 * streams from SP_CLOCK on share one tick, the latest, with a mask of those that have
 * used the memory. */
typedef struct {
  uint64_t owned, others;
  uint64_t tick[SP_CLOCK];
  uint64_t rest_tick, rest_mask;
  int64_t owner;
} sp_clock;

/* sp_clock_own notes, in the clock of a block, which is zero before, that it was freed, and
 * whose it was; sp_clock_use, that another stream used it. sp_clock_merge notes that two
 * pieces of memory are one. */
void sp_clock_own(sp_clock *c, int stream, uint64_t tick);
void sp_clock_use(sp_clock *c, int stream, uint64_t tick);
void sp_clock_merge(sp_clock *into, const sp_clock *from);

/* sp_clock_used is when a stream used the memory last, as far as record_stream has said.
 * sp_clock_foreign is when a block of any other stream than this was freed last. */
uint64_t sp_clock_used(const sp_clock *c, int stream);
uint64_t sp_clock_foreign(const sp_clock *c, int stream);

/* sp_mark is an event of a stream or of the device. */
typedef struct {
  void *event;
  uint64_t tick; /* that it covers; 0 while it covers nothing */
  uint64_t settled; /* the clock when it had been recorded */
  int busy;      /* being recorded */
  int awaited;   /* how many are about to wait for it as it stands; until then it is not recorded again */
  int kept;      /* exchanges that it is the last one before; until they are awaited it is not recorded again */
} sp_mark;

typedef struct {
  sp_mark list[SP_STREAM_EVENTS];
  int next; /* the one to record next */
} sp_marks;

/* Exchanges that are told apart. If there are more, the last two that the program awaits
 * become one; if there are none such, the last one takes in the next. Two that are one
 * count as under way until both are done. */
enum { SP_EXCHANGES = 32 };

/* Marks that are kept for exchanges: the others are recorded in turn. */
enum { SP_KEPT = SP_STREAM_EVENTS / 2 };

/* sp_exchange is an exchange with another process, or something else that the host
 * must not wait for. It is over once its event, of the whole device, has completed. */
typedef struct {
  void *event;
  uint64_t tick;    /* of the clock when it began; 0 if there is none here */
  uint64_t number;  /* that it was told with: a count, times SP_EXCHANGES, and its index; 0 if it stands for several */
  uint64_t awaited; /* streams that the program has made wait for it, as a mask */
  uint64_t serial;  /* counts the recordings of the event, those being made too */
  uint64_t first;   /* the first recording that is behind the exchange */
  int recording;    /* how many are being made */
  int recorded;     /* one has been made for this exchange; if not, it is made later */
  int open;         /* how many have begun and may not have been enqueued yet; then none is awaited, and no recording counts */
  uint64_t making;  /* the least tick that a recording being made covers */
  uint64_t covers;  /* the tick that the event covers, once it is recorded */
  int before;       /* the mark of the whole device that is kept for it; -1 if none is */
} sp_exchange;

typedef struct {
  uint64_t handle;
  sp_marks marks;
  uint64_t waited[SP_SOURCES]; /* the tick up to which it has waited for each other stream, and for the device */
} sp_stream;

typedef struct {
  sp_stream *list[SP_STREAMS];
  int count;
  uint64_t now;           /* frees so far */
  uint64_t done;          /* the device has done everything up to this tick, as far as was looked */
  int has_whole;          /* the device has events of the whole device */
  sp_marks whole;         /* if so */
  sp_exchange exchanges[SP_EXCHANGES];
  int latest;     /* of the exchanges, the one that was told last */
  _Atomic uint64_t told; /* exchanges so far; written with the lock */
  pthread_mutex_t prepare; /* held while the events of the whole device are made */
} sp_streams;

/* sp_streams_open prepares, and sp_streams_close destroys all events. */
void sp_streams_open(sp_streams *s, const sp_prim *p);
void sp_streams_close(sp_streams *s, const sp_prim *p);

/* sp_streams_find is the stream's index, or -1. */
int sp_streams_find(const sp_streams *s, uint64_t handle);

/* sp_stream_make and sp_stream_drop make and destroy a stream with its events; they
 * call the driver, without the lock. With the first stream the events of the whole
 * device are made. A stream that cannot be recorded on is refused, such as one of
 * another device: memory that it had used could never be ordered behind it, nor memory
 * that is merged with that. */
sp_stream *sp_stream_make(sp_streams *s, const sp_prim *p, uint64_t handle);
void sp_stream_drop(const sp_prim *p, sp_stream *stream);

/* sp_streams_waits says whether a stream has to wait before it may touch memory
 * with this clock. */
int sp_streams_waits(const sp_streams *s, const sp_clock *c, int stream);

/* sp_streams_begin is told of an exchange that begins at this tick, before it is enqueued,
 * and returns its number; 0 if the device has no events for that. sp_streams_enqueued is told,
 * once for each, that it has been enqueued, or will never be. It returns the index of an
 * exchange whose event has to be recorded now, or -1 if none has: another one that counts
 * as the same may not have been enqueued yet.
 * sp_streams_recording comes before that, and returns the recording's serial;
 * sp_streams_record_exchange records it, without the lock; sp_streams_recorded is told
 * what that returned, nonzero for a failure. */
uint64_t sp_streams_begin(sp_streams *s, uint64_t tick);
int sp_streams_enqueued(sp_streams *s, uint64_t number);
uint64_t sp_streams_recording(sp_streams *s, int exchange);
int sp_streams_record_exchange(sp_streams *s, const sp_prim *p, int exchange);
void sp_streams_recorded(sp_streams *s, int exchange, uint64_t serial, int failed);

/* sp_streams_since is how many exchanges have begun since the one of this number. */
uint64_t sp_streams_since(const sp_streams *s, uint64_t number);

/* sp_streams_awaited is told that the program has made a stream wait for the exchange of
 * this number. That cannot be so before it is enqueued, and counts for nothing then. */
void sp_streams_awaited(sp_streams *s, uint64_t number, int stream);

/* sp_streams_exchanging says whether an exchange is under way. sp_streams_oldest is the first
 * of them, or -1; it leaves out those that may not have been enqueued yet, and those whose
 * event is just being recorded. sp_streams_over is told that its event has completed, as it
 * was recorded with that serial. */
int sp_streams_exchanging(const sp_streams *s);
int sp_streams_oldest(const sp_streams *s);
void sp_streams_over(sp_streams *s, int exchange, uint64_t serial);

/* sp_streams_next is the oldest mark of the whole device of which it is not known that the
 * device has done what it covers, or -1. The mark is reserved until sp_streams_looked is
 * told whether its event has completed. */
int sp_streams_next(sp_streams *s);
void sp_streams_looked(sp_streams *s, int mark, int done);

/* sp_need is one wait: for stream `on`, or the whole device, up to a tick. */
typedef struct {
  int on;
  int mark;      /* of that stream, to be waited for */
  int record;    /* the mark has to be recorded first */
  int lost;      /* the device turned out to have no events of the whole device */
  uint64_t tick; /* that the mark covers then */
} sp_need;

/* sp_streams_needs lists the waits of a stream before it may touch memory with
 * this clock, and reserves their marks, those to be recorded too. It returns
 * their number, or -1 if a stream has no mark to spare, or an exchange is in the way. */
int sp_streams_needs(sp_streams *s, const sp_clock *c, int stream, sp_need needs[SP_SOURCES]);

/* sp_streams_can says whether a stream can be made to wait for what used memory with this
 * clock: no exchange is in the way. If a mark is yet to be recorded, there may be none to
 * spare all the same. */
int sp_streams_can(sp_streams *s, const sp_clock *c, int stream);

/* sp_streams_needs_of_host lists, in the same way, what the host has to wait for before
 * memory with this clock may be given back to the device. */
int sp_streams_needs_of_host(sp_streams *s, const sp_clock *c, sp_need needs[SP_SOURCES]);

/* sp_streams_perform makes the stream wait on the device. Called without the lock. Zero
 * is success; if it fails part way, the stream has waited for more than was needed. `told`
 * is how many exchanges there had been when the needs were listed: an event that was recorded
 * behind a further one is not waited for. */
int sp_streams_perform(sp_streams *s, const sp_prim *p, int stream, sp_need *needs, int count, uint64_t told);

/* sp_streams_await records the marks that have to be, and waits for all of them on the
 * host, for at most this many nanoseconds. Called without the lock. Zero is success; 1
 * if they are not done by then, -1 if they could not be recorded, the device does not say, or
 * there have been more exchanges than were `told`, as above. */
int sp_streams_await(sp_streams *s, const sp_prim *p, sp_need *needs, int count, uint64_t told, uint64_t limit);

/* sp_streams_record records a reserved mark's event, and says whether it can be waited
 * for. One that is recorded while a capture of its stream begins cannot: it belongs to
 * the graph, and so would any stream that waits for it. One of the whole device is not
 * recorded while it is known that something is captured (stplan_hold). Called without the lock. */
int sp_streams_record(sp_streams *s, const sp_prim *p, sp_need *need);

/* sp_streams_all_done is told that the device has done all that it had been given by a tick. */
void sp_streams_all_done(sp_streams *s, uint64_t tick);

/* sp_streams_settle ends the reservation of marks. If the waits were performed, it
 * notes what the marks cover, and what `stream` has waited for; -1 if no stream has. */
void sp_streams_settle(sp_streams *s, int stream, const sp_need *needs, int count, int performed);

/* sp_streams_reserve reserves a mark of the stream, or of the device, to be recorded
 * at the present tick. 0 if there is none to spare. */
int sp_streams_reserve(sp_streams *s, int on, sp_need *need);

/* sp_streams_reserve_all reserves marks that cover everything that was given to the
 * device, and returns their number: of the device, or of all known streams. */
int sp_streams_reserve_all(sp_streams *s, sp_need needs[SP_STREAMS]);

#endif
