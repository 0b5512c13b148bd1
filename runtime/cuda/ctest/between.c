/* between.c: what another thread may do between two calls of the device that one request
 * makes. The runtime holds no lock then, so the primitives here do it themselves, in the
 * middle of a call: each order of events is certain, and no test waits for luck. */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "../prim_host.h"
#include "../streams.h"

#include "conformance.h"

enum { MIB = 1 << 20, SMALL = 512 << 10 }; /* the free of a small block records no event */

typedef struct {
  void *inner;        /* the host's */
  unsigned recorded;  /* the count of recordings when it was recorded last */
  unsigned exchanges; /* that had been enqueued by then */
} event;

static struct {
  sp_prim host;
  stplan_device *device;
  unsigned recordings, waits;
  unsigned exchanges; /* enqueued so far */
  unsigned done;      /* the device has done what was recorded up to this one */
  unsigned stalled;   /* what is behind this exchange is not done; 0 for none */
  int refuses;        /* it has no events of the whole device */
  void (*before_record)(void), (*after_record)(void), (*before_wait)(void); /* once, around a recording of the whole device, and before a wait */
  event *waited;      /* by the last wait, as it was when the wait was made */
} world;

static void once(void (**hook)(void)) {
  void (*call)(void) = *hook;
  *hook = NULL;
  if (call != NULL)
    call();
}

static int event_create(void *self, void **out) {
  event *e = calloc(1, sizeof *e);
  DEMAND(e != NULL && world.host.event_create(self, &e->inner) == 0);
  *out = e;
  return 0;
}

static void event_destroy(void *self, void *of) {
  event *e = of;
  world.host.event_destroy(self, e->inner);
  free(e);
}

static void put(event *e) {
  e->recorded = ++world.recordings;
  e->exchanges = world.exchanges;
}

static int event_record(void *self, void *of, uint64_t stream) {
  event *e = of;
  put(e);
  return world.host.event_record(self, e->inner, stream);
}

static int event_record_whole(void *self, void *of) {
  event *e = of;
  once(&world.before_record);
  if (world.refuses)
    return SP_NEVER;
  put(e);
  int failed = world.host.event_record_whole(self, e->inner);
  once(&world.after_record);
  return failed;
}

static int stream_wait(void *self, uint64_t stream, void *of) {
  event *e = of;
  unsigned recorded = e->recorded;
  once(&world.before_wait);
  DEMAND(e->recorded == recorded); /* it was chosen as it stood */
  world.waits++;
  world.waited = e;
  return world.host.stream_wait(self, stream, e->inner);
}

static int event_done(void *self, void *of) {
  const event *e = of;
  (void)self;
  return e->recorded <= world.done && (world.stalled == 0 || e->exchanges < world.stalled);
}

static void begin(void) {
  const sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = UINT64_C(256) * MIB, .granularity = 2 * MIB, .partial = 1};
  memset(&world, 0, sizeof world);
  DEMAND(sp_host_open(&options, &world.host));
  sp_prim prim = world.host;
  prim.event_create = event_create;
  prim.event_destroy = event_destroy;
  prim.event_record = event_record;
  prim.event_record_whole = event_record_whole;
  prim.stream_wait = stream_wait;
  prim.event_done = event_done;
  prim.carry = NULL; /* so that the host waits for what moves */
  DEMAND(stplan_open(&prim, NULL, 0, &world.device) == STPLAN_OK);
  stplan_free(world.device, stplan_malloc(world.device, 512, 2, NULL, NULL), 2); /* the second stream is known */
}

static uint64_t get(uint64_t size, uint64_t stream) {
  uint64_t p = stplan_malloc(world.device, size, stream, NULL, NULL);
  DEMAND(p != 0);
  return p;
}

/* get_apart is a small block with another one above it: once it is free it fits best. */
static uint64_t get_apart(uint64_t stream) {
  uint64_t p = get(SMALL, stream);
  DEMAND(get(SMALL, stream) == p + SMALL);
  return p;
}

static void put_back(uint64_t p) { DEMAND(stplan_release(world.device, p, NULL) == STPLAN_OK); }

/* A receive is announced, is enqueued, and is told to have been. */
static uint64_t announce(void) {
  uint64_t number = stplan_exchange_begins(world.device);
  DEMAND(number != 0);
  return number;
}

static void enqueue(void) { world.exchanges++; }

static void tell(uint64_t number) { stplan_exchange_enqueued(world.device, number); }

static void receive(void) {
  uint64_t number = announce();
  enqueue();
  tell(number);
}

/* A receive is enqueued and told after a request has made out that it needs an event, and
 * before that is recorded. The event is behind the receive, so the request's stream must not
 * wait for it. */
static void a_receive_begins_before_the_event(void) {
  begin();
  uint64_t p = get(SMALL, 1);
  put_back(p);
  world.before_record = receive;
  uint64_t q = get(SMALL, 2);
  DEMAND(world.exchanges == 1); /* or nothing was shown */
  DEMAND(world.waits == 0 && q != p);
  stplan_close(world.device);
}

/* A receive that is enqueued once the event has been recorded is not waited for, so the
 * memory is used. */
static void a_receive_begins_before_the_wait(void) {
  begin();
  uint64_t p = get(SMALL, 1);
  put_back(p);
  world.before_wait = receive;
  DEMAND(get(SMALL, 2) == p && world.waits == 1 && world.exchanges == 1 && world.waited->exchanges == 0);
  stplan_close(world.device);
}

/* A request comes when a receive has been enqueued and the runtime does not know that yet.
 * Whatever is recorded now is behind the receive, so the request's stream must not wait for it. */
static void a_request_comes_before_a_receive_is_told(void) {
  begin();
  uint64_t p = get_apart(1);
  put_back(p);
  uint64_t number = announce();
  enqueue();
  world.stalled = 1;
  world.done = UINT_MAX;
  uint64_t q = get(SMALL, 2);
  DEMAND(world.waits == 0 && q != p);
  tell(number);
  uint64_t r = get(SMALL, 2);
  DEMAND(world.waits == 0 && r != p);
  world.stalled = 0; /* it has come */
  DEMAND(get(SMALL, 2) == p);
  stplan_close(world.device);
}

/* Before a receive is enqueued the device is idle and every event is done. That says nothing
 * about the receive, which is enqueued then. */
static void everything_is_done_before_a_receive_is_enqueued(void) {
  begin();
  uint64_t p = get_apart(1), number = announce();
  put_back(p);
  world.done = UINT_MAX;
  get(SMALL, 2);
  enqueue();
  world.stalled = 1;
  get(SMALL, 2);
  DEMAND(world.waits == 0);
  tell(number);
  get(SMALL, 2);
  DEMAND(world.waits == 0);
  stplan_close(world.device);
}

/* A call that was to enqueue a receive fails. Then there is nothing that others have to mind. */
static void a_receive_that_is_not_enqueued(void) {
  begin();
  uint64_t number = announce();
  tell(number);
  world.done = UINT_MAX;
  uint64_t p = get_apart(1);
  put_back(p);
  DEMAND(get(SMALL, 2) == p && world.waits == 1);
  tell(number); /* it counts once: the next receive is still to be enqueued */
  uint64_t next = announce(), q = get_apart(1);
  tell(number);
  put_back(q);
  DEMAND(get(SMALL, 2) != q && world.waits == 1);
  tell(next);
  stplan_close(world.device);
}

/* While something is captured, a receive is told to have been enqueued. No event can be recorded
 * behind it now, so it is under way until one has been. */
static void a_receive_is_told_during_a_capture(void) {
  begin();
  uint64_t number = announce();
  enqueue();
  world.stalled = 1;
  world.done = UINT_MAX;
  unsigned recordings = world.recordings;
  stplan_hold(1);
  tell(number);
  DEMAND(world.recordings == recordings);
  stplan_hold(0);
  uint64_t p = get_apart(1);
  put_back(p);
  DEMAND(get(SMALL, 2) != p && world.waits == 0);
  world.stalled = 0;
  DEMAND(get(SMALL, 2) == p);
  stplan_close(world.device);
}

/* That a stream waits for a receive counts only once that has been enqueued: what waits for nothing
 * is not behind it. */
static void a_receive_is_awaited_before_it_is_told(void) {
  begin();
  put_back(get(512, 1)); /* the stream is known */
  world.waits = 0;
  uint64_t p = get_apart(2), number = announce();
  put_back(p);
  stplan_exchange_awaited(world.device, number, 1);
  enqueue();
  DEMAND(get(SMALL, 1) != p && world.waits == 0);
  tell(number);
  DEMAND(get(SMALL, 1) != p && world.waits == 0);
  stplan_exchange_awaited(world.device, number, 1);
  DEMAND(get(SMALL, 1) == p && world.waits == 1);
  stplan_close(world.device);
}

/* More receives are announced, by many threads, than are told apart: the last ones count as one, which
 * is under way as long as one of them may yet be enqueued. */
static void more_receives_are_announced_than_are_told_apart(void) {
  enum { MANY = SP_EXCHANGES + 3 };
  uint64_t numbers[MANY];
  begin();
  world.done = UINT_MAX;
  for (int i = 0; i < MANY; i++) {
    numbers[i] = announce();
    for (int k = 0; k <= i; k++) {
      DEMAND(k == i || numbers[k] != numbers[i]);
      stplan_exchange_awaited(world.device, numbers[k], 2); /* which counts for none of them */
    }
  }
  uint64_t p = get_apart(1);
  for (int i = 0; i < MANY - 1; i++)
    tell(numbers[i]);
  put_back(p);
  DEMAND(get(SMALL, 2) != p && world.waits == 0);
  enqueue();
  world.stalled = 1;
  DEMAND(get(SMALL, 2) != p && world.waits == 0);
  tell(numbers[MANY - 1]);
  DEMAND(get(SMALL, 2) != p && world.waits == 0);
  world.stalled = 0;
  DEMAND(get(SMALL, 2) == p);
  stplan_close(world.device);
}

/* An exchange's event is found to be done, and before that is noted another exchange comes to count
 * as the same. Neither what was recorded before nor what is being recorded then says anything of that one. */
static void an_exchange_joins_one_that_is_just_over(void) {
  sp_streams s = {0};
  uint64_t number = 0;
  begin();
  sp_streams_open(&s, &world.host);
  for (int i = 0; i < SP_EXCHANGES; i++) { /* the last one began first, as one does that nobody told of */
    number = sp_streams_begin(&s, i == SP_EXCHANGES - 1 ? 1 : 2);
    DEMAND(sp_streams_enqueued(&s, number) == i);
  }
  int last = SP_EXCHANGES - 1;
  sp_streams_awaited(&s, number, 0);
  DEMAND(s.exchanges[last].awaited != 0);
  uint64_t serial = sp_streams_recording(&s, last);
  sp_streams_recorded(&s, last, serial, 0);
  DEMAND(sp_streams_oldest(&s) == last && s.exchanges[last].recorded);
  number = sp_streams_begin(&s, 3);
  sp_streams_over(&s, last, serial);
  DEMAND(s.exchanges[last].tick == 1 && s.exchanges[last].awaited == 0 && sp_streams_oldest(&s) != last);
  serial = sp_streams_recording(&s, last);
  DEMAND(sp_streams_enqueued(&s, number) == last && !s.exchanges[last].recorded);
  sp_streams_recorded(&s, last, serial, 0);
  DEMAND(sp_streams_oldest(&s) == last && !s.exchanges[last].recorded);
  serial = sp_streams_recording(&s, last);
  sp_streams_recorded(&s, last, serial, 0);
  DEMAND(s.exchanges[last].recorded);
  sp_streams_over(&s, last, serial);
  DEMAND(s.exchanges[last].tick == 0);
  sp_streams_close(&s, &world.host);
  stplan_close(world.device);
}

/* 0 is the number of none, also if several count as the first one of all. */
static void the_number_0_ends_none(void) {
  sp_streams s = {0};
  begin();
  sp_streams_open(&s, &world.host);
  for (int i = 0; i < SP_EXCHANGES; i++)
    DEMAND(sp_streams_enqueued(&s, sp_streams_begin(&s, 1)) == i);
  sp_streams_over(&s, 0, 0);
  uint64_t one = sp_streams_begin(&s, 2), two = sp_streams_begin(&s, 2);
  DEMAND(s.exchanges[0].open == 2 && sp_streams_enqueued(&s, 0) == -1 && s.exchanges[0].open == 2);
  DEMAND(sp_streams_enqueued(&s, two) == -1 && sp_streams_enqueued(&s, one) == 0);
  sp_streams_close(&s, &world.host);
  stplan_close(world.device);
}

/* The device turns out to have no events of the whole device while a receive is announced. Then
 * none is followed, and that it is told changes nothing. */
static void events_are_lost_before_a_receive_is_told(void) {
  begin();
  uint64_t number = announce();
  world.refuses = 1;
  put_back(get(2 * MIB, 1));
  DEMAND(stplan_exchange_begins(world.device) == 0);
  world.refuses = 0;
  unsigned recordings = world.recordings;
  tell(number);
  DEMAND(world.recordings == recordings);
  uint64_t p = get_apart(1);
  put_back(p);
  DEMAND(get(SMALL, 2) == p && world.waits == 1); /* for the other stream */
  stplan_close(world.device);
}

/* frees records some events of the device. */
static void frees(int count) {
  for (int i = 0; i < count; i++)
    put_back(get(2 * MIB, 3));
}

/* many_frees is enough of them for every event to be recorded again, but for the last one
 * before a receive, which is kept anyway. */
static void many_frees(void) {
  frees(SP_STREAM_EVENTS / 2);
  receive();
  frees(2 * SP_STREAM_EVENTS);
}

/* An event that a request is about to wait for is not recorded again meanwhile: it would be
 * behind a receive that has been enqueued since. */
static void events_stay_while_somebody_is_about_to_wait(void) {
  begin();
  uint64_t p = get(2 * MIB, 1);
  put_back(p);
  world.before_wait = many_frees;
  DEMAND(get(2 * MIB, 2) == p && world.waits == 1 && world.waited->exchanges == 0);
  stplan_close(world.device);
}

/* The same if the host is about to wait, for memory that is to move: it would wait for a
 * receive that is done only once this process goes on. */
static void a_receive_begins_before_the_host_waits(void) {
  enum { PIECES = 16, PIECE = 8 * MIB };
  uint64_t p[PIECES];
  stplan_counters c;
  begin();
  for (int i = 0; i < PIECES; i++)
    p[i] = get(PIECE, 1);
  for (int i = 0; i < PIECES; i += 2)
    put_back(p[i]);
  put_back(get(SMALL, 2)); /* a free that no event covers */
  world.done = UINT_MAX;
  world.stalled = 1;
  world.before_record = receive;
  time_t before = time(NULL);
  get(4 * PIECE, 1);
  stplan_read(world.device, &c);
  DEMAND(world.exchanges == 1);
  DEMAND(time(NULL) - before < 3 && c.moved_bytes == 0);
  stplan_close(world.device);
}

static uint64_t late;

static void free_late(void) { put_back(late); }

/* A block is freed after a receive's event has been recorded, and before the runtime has
 * noted that: the end of the receive says nothing about it. */
static void a_free_comes_after_the_receives_event(void) {
  begin();
  late = get(SMALL, 1);
  world.after_record = free_late;
  receive();
  world.done = world.recordings;
  DEMAND(get(SMALL, 2) != late || world.waits == 1);
  stplan_close(world.device);
}

/* The host waits for marks that cover the last free, not for those of the tick before; it does
 * not wait if the device has done as much. With events of the whole device and without. */
static void the_host_waits_for_the_last_free(int has_whole) {
  begin();
  for (uint64_t behind = 0; behind < 2; behind++) { /* ticks that the marks lack to the free */
    sp_streams s = {0};
    sp_need needs[SP_SOURCES];
    sp_clock c = {0};
    sp_streams_open(&s, &world.host);
    for (uint64_t i = 0; i < 2; i++)
      DEMAND((s.list[s.count++] = sp_stream_make(&s, &world.host, i)) != NULL);
    s.has_whole = has_whole;
    s.now = 7;
    sp_clock_own(&c, 0, s.now);
    sp_marks *sources[] = {&s.list[0]->marks, &s.list[1]->marks, &s.whole};
    for (int i = 0; i < 3; i++)
      sources[i]->list[0].tick = sources[i]->list[0].settled = s.now - behind;
    int count = sp_streams_needs_of_host(&s, &c, needs);
    DEMAND(count == (has_whole ? 1 : 2));
    for (int i = 0; i < count; i++)
      DEMAND(needs[i].tick >= s.now && needs[i].record == (behind > 0));
    sp_streams_settle(&s, -1, needs, count, 0);
    s.done = s.now - 1;
    count = sp_streams_needs_of_host(&s, &c, needs);
    DEMAND(count > 0);
    sp_streams_settle(&s, -1, needs, count, 0);
    s.done = s.now;
    DEMAND(sp_streams_needs_of_host(&s, &c, needs) == 0);
    sp_streams_close(&s, &world.host);
  }
  stplan_close(world.device);
}

int main(void) {
  a_receive_begins_before_the_event();
  a_receive_begins_before_the_wait();
  a_request_comes_before_a_receive_is_told();
  everything_is_done_before_a_receive_is_enqueued();
  a_receive_that_is_not_enqueued();
  a_receive_is_told_during_a_capture();
  a_receive_is_awaited_before_it_is_told();
  more_receives_are_announced_than_are_told_apart();
  an_exchange_joins_one_that_is_just_over();
  the_number_0_ends_none();
  events_are_lost_before_a_receive_is_told();
  events_stay_while_somebody_is_about_to_wait();
  a_receive_begins_before_the_host_waits();
  a_free_comes_after_the_receives_event();
  the_host_waits_for_the_last_free(0);
  the_host_waits_for_the_last_free(1);
  return 0;
}
