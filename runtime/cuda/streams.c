#define _POSIX_C_SOURCE 200809L

#include "streams.h"

#include <stdlib.h>
#include <time.h>

#include "device_hold.h"

void sp_clock_own(sp_clock *c, int stream, uint64_t tick) {
  c->owner = stream;
  c->owned = tick;
}

void sp_clock_use(sp_clock *c, int stream, uint64_t tick) {
  if (stream < SP_CLOCK) {
    if (tick > c->tick[stream])
      c->tick[stream] = tick;
    return;
  }
  c->rest_mask |= UINT64_C(1) << stream;
  if (tick > c->rest_tick)
    c->rest_tick = tick;
}

static uint64_t latest(uint64_t a, uint64_t b) { return a > b ? a : b; }

void sp_clock_merge(sp_clock *into, const sp_clock *from) {
  for (int i = 0; i < SP_CLOCK; i++)
    into->tick[i] = latest(into->tick[i], from->tick[i]);
  into->rest_mask |= from->rest_mask;
  into->rest_tick = latest(into->rest_tick, from->rest_tick);
  if (from->owner == into->owner) {
    into->owned = latest(into->owned, from->owned);
    into->others = latest(into->others, from->others);
  } else if (from->owned > into->owned) {
    into->others = latest(into->owned, from->others);
    into->owned = from->owned;
    into->owner = from->owner;
  } else {
    into->others = latest(into->others, from->owned);
  }
}

uint64_t sp_clock_used(const sp_clock *c, int stream) {
  if (stream < SP_CLOCK)
    return c->tick[stream];
  return c->rest_mask >> stream & 1 ? c->rest_tick : 0;
}

uint64_t sp_clock_foreign(const sp_clock *c, int stream) { return c->owner == stream ? c->others : c->owned; }

int sp_streams_find(const sp_streams *s, uint64_t handle) {
  for (int i = 0; i < s->count; i++)
    if (s->list[i]->handle == handle)
      return i;
  return -1;
}

static void drop_event(const sp_prim *p, void **event) {
  if (*event != NULL)
    p->event_destroy(p->self, *event);
  *event = NULL;
}

/* make_event makes an event, unless there is one. 0 if the driver gives none. */
static int make_event(const sp_prim *p, void **event) {
  void *made;
  if (*event == NULL && p->event_create(p->self, &made) == 0)
    *event = made;
  return *event != NULL;
}

static void drop_marks(const sp_prim *p, sp_marks *marks) {
  for (int i = 0; i < SP_STREAM_EVENTS; i++)
    drop_event(p, &marks->list[i].event);
}

static int make_marks(const sp_prim *p, sp_marks *marks) {
  int made = 1;
  for (int i = 0; i < SP_STREAM_EVENTS && made; i++)
    made = make_event(p, &marks->list[i].event);
  return made;
}

void sp_streams_open(sp_streams *s, const sp_prim *p) {
  s->has_whole = p->event_record_whole != NULL;
  for (int i = 0; i < SP_EXCHANGES; i++)
    s->exchanges[i].before = -1;
  pthread_mutex_init(&s->prepare, NULL);
}

void sp_streams_close(sp_streams *s, const sp_prim *p) {
  for (int i = 0; i < s->count; i++)
    sp_stream_drop(p, s->list[i]);
  drop_marks(p, &s->whole);
  for (int i = 0; i < SP_EXCHANGES; i++)
    drop_event(p, &s->exchanges[i].event);
  pthread_mutex_destroy(&s->prepare);
}

/* prepare makes the events of the whole device. 0 if the driver gives none. */
static int prepare(sp_streams *s, const sp_prim *p) {
  if (p->event_record_whole == NULL)
    return 1;
  pthread_mutex_lock(&s->prepare);
  int made = make_marks(p, &s->whole);
  for (int i = 0; i < SP_EXCHANGES && made; i++)
    made = make_event(p, &s->exchanges[i].event);
  pthread_mutex_unlock(&s->prepare);
  return made;
}

/* usable says whether events can be recorded on a stream. */
static int usable(const sp_prim *p, const sp_stream *stream) {
  return p->capturing(p->self, stream->handle) || p->event_record(p->self, stream->marks.list[0].event, stream->handle) == 0;
}

sp_stream *sp_stream_make(sp_streams *s, const sp_prim *p, uint64_t handle) {
  sp_stream *made = calloc(1, sizeof *made);
  if (made == NULL)
    return NULL;
  made->handle = handle;
  if (prepare(s, p) && make_marks(p, &made->marks) && usable(p, made))
    return made;
  sp_stream_drop(p, made);
  return NULL;
}

void sp_stream_drop(const sp_prim *p, sp_stream *stream) {
  drop_marks(p, &stream->marks);
  free(stream);
}

/* covered is the tick up to which a stream need not wait for another: it has waited, by an
 * event of that stream or of the whole device, or the device has done it all. */
static uint64_t covered(const sp_streams *s, int stream, int on) {
  const uint64_t *waited = s->list[stream]->waited;
  return latest(s->done, latest(waited[on], waited[SP_WHOLE]));
}

/* behind is the tick of another stream up to which a stream has to have waited for it. If the
 * device has no events of the whole device, that includes what other streams freed. */
static uint64_t behind(const sp_streams *s, const sp_clock *c, uint64_t foreign, int other) {
  return latest(s->has_whole ? 0 : foreign, sp_clock_used(c, other));
}

int sp_streams_waits(const sp_streams *s, const sp_clock *c, int stream) {
  uint64_t foreign = sp_clock_foreign(c, stream);
  if (s->has_whole && foreign > covered(s, stream, SP_WHOLE))
    return 1;
  for (int i = 0; i < s->count; i++)
    if (i != stream && behind(s, c, foreign, i) > covered(s, stream, i))
      return 1;
  return 0;
}

static sp_marks *marks_of(sp_streams *s, int on) { return on == SP_WHOLE ? &s->whole : &s->list[on]->marks; }

/* The host, as who waits, in place of a stream. */
enum { HOST = -1 };

/* since is when the first exchange began that may still be under way, and that the program
 * has not made this stream wait for. */
static uint64_t since(const sp_streams *s, int stream) {
  uint64_t first = UINT64_MAX, bit = stream == HOST ? 0 : UINT64_C(1) << stream;
  for (int i = 0; i < SP_EXCHANGES; i++) {
    const sp_exchange *e = &s->exchanges[i];
    if (e->tick != 0 && (e->awaited & bit) == 0 && e->tick < first)
      first = e->tick;
  }
  return first;
}

/* covering is the oldest mark that covers a tick and had been recorded before
 * another, or -1: the older, the less the device waits for. */
static int covering(const sp_marks *marks, uint64_t tick, uint64_t before) {
  int best = -1;
  for (int i = 0; i < SP_STREAM_EVENTS; i++) {
    const sp_mark *m = &marks->list[i];
    if (!m->busy && m->tick >= tick && m->settled < before && (best < 0 || m->tick < marks->list[best].tick))
      best = i;
  }
  return best;
}

int sp_streams_reserve(sp_streams *s, int on, sp_need *need) {
  sp_marks *of = marks_of(s, on);
  for (int i = 0; i < SP_STREAM_EVENTS; i++) {
    int k = (of->next + i) % SP_STREAM_EVENTS;
    if (of->list[k].busy || of->list[k].awaited > 0 || of->list[k].kept > 0)
      continue;
    of->next = (k + 1) % SP_STREAM_EVENTS;
    of->list[k].busy = 1;
    *need = (sp_need){.on = on, .mark = k, .record = 1, .tick = s->now};
    return 1;
  }
  return 0;
}

int sp_streams_reserve_all(sp_streams *s, sp_need needs[SP_STREAMS]) {
  int count = 0;
  if (s->has_whole)
    return sp_streams_reserve(s, SP_WHOLE, needs);
  for (int i = 0; i < s->count; i++)
    count += sp_streams_reserve(s, i, &needs[count]);
  return count;
}

/* make_out makes out the wait of a stream, or of the host, for a source up to a tick. 0 if
 * no mark is to spare, or if an exchange is under way and no mark from before it will do. */
static int make_out(sp_streams *s, int stream, int on, uint64_t tick, sp_need *need) {
  sp_marks *of = marks_of(s, on);
  uint64_t before = since(s, stream);
  int mark = covering(of, tick, before);
  if (mark < 0)
    return before == UINT64_MAX && sp_streams_reserve(s, on, need);
  of->list[mark].awaited++;
  *need = (sp_need){.on = on, .mark = mark, .tick = of->list[mark].tick};
  return 1;
}

/* can says whether a stream can be made to wait for a source up to a tick now. */
static int can(sp_streams *s, int stream, int on, uint64_t tick) {
  uint64_t before = since(s, stream);
  return before == UINT64_MAX || covering(marks_of(s, on), tick, before) >= 0;
}

int sp_streams_can(sp_streams *s, const sp_clock *c, int stream) {
  uint64_t foreign = sp_clock_foreign(c, stream);
  if (s->has_whole && foreign > covered(s, stream, SP_WHOLE) && !can(s, stream, SP_WHOLE, foreign))
    return 0;
  for (int i = 0; i < s->count; i++) {
    uint64_t tick = behind(s, c, foreign, i);
    if (i != stream && tick > covered(s, stream, i) && !can(s, stream, i, tick) && !(s->has_whole && can(s, stream, SP_WHOLE, tick)))
      return 0;
  }
  return 1;
}

/* undo ends the reservation of waits that are not made. */
static int undo(sp_streams *s, const sp_need *needs, int count) {
  sp_streams_settle(s, -1, needs, count, 0);
  return -1;
}

int sp_streams_needs(sp_streams *s, const sp_clock *c, int stream, sp_need needs[SP_SOURCES]) {
  uint64_t foreign = sp_clock_foreign(c, stream), whole = 0;
  int count = 0;
  if (s->has_whole && foreign > covered(s, stream, SP_WHOLE)) {
    if (!make_out(s, stream, SP_WHOLE, foreign, &needs[count]))
      return -1;
    whole = needs[count++].tick;
  }
  for (int i = 0; i < s->count; i++) {
    uint64_t tick = behind(s, c, foreign, i);
    if (i == stream || tick <= latest(whole, covered(s, stream, i)))
      continue;
    /* While an exchange is under way the whole device may have the only mark that will do. */
    if (!make_out(s, stream, i, tick, &needs[count]) && !(s->has_whole && make_out(s, stream, SP_WHOLE, tick, &needs[count])))
      return undo(s, needs, count);
    if (needs[count].on == SP_WHOLE)
      whole = needs[count].tick;
    count++;
  }
  return count;
}

/* What a block was used for by others had been given to the device by its free, so the
 * tick of the last free is all that counts. */
int sp_streams_needs_of_host(sp_streams *s, const sp_clock *c, sp_need needs[SP_SOURCES]) {
  int count = 0;
  if (c->owned <= s->done)
    return 0;
  if (s->has_whole)
    return make_out(s, HOST, SP_WHOLE, c->owned, needs) ? 1 : -1;
  for (; count < s->count; count++)
    if (!make_out(s, HOST, count, c->owned, &needs[count]))
      return undo(s, needs, count);
  return count;
}

/* record_whole records an event of the whole device, unless something is captured: the
 * driver does not tell of the default stream if one is that it ties to that. The other
 * streams are not asked, as some may be gone by now. It returns what the device does;
 * nonzero is failure. */
static int record_whole(const sp_prim *p, void *event) {
  if (!sp_hold_enter())
    return 1;
  int failed = p->capturing(p->self, 0) != 0 ? 1 : p->event_record_whole(p->self, event);
  sp_hold_leave();
  return failed;
}

int sp_streams_record(sp_streams *s, const sp_prim *p, sp_need *need) {
  if (need->on == SP_WHOLE) {
    int failed = record_whole(p, s->whole.list[need->mark].event);
    need->lost = failed == SP_NEVER;
    return !failed;
  }
  const sp_stream *on = s->list[need->on];
  return !p->capturing(p->self, on->handle) && p->event_record(p->self, on->marks.list[need->mark].event, on->handle) == 0 &&
         !p->capturing(p->self, on->handle);
}

/* records_before records a mark, and says whether it can be waited for: no exchange has begun
 * since there had been as many as `told`, or the mark may be behind that. */
static int records_before(sp_streams *s, const sp_prim *p, sp_need *need, uint64_t told) {
  return sp_streams_record(s, p, need) && s->told == told;
}

int sp_streams_perform(sp_streams *s, const sp_prim *p, int stream, sp_need *needs, int count, uint64_t told) {
  uint64_t handle = s->list[stream]->handle;
  if (p->capturing(p->self, handle))
    return 1;
  for (int i = 0; i < count; i++) {
    if (needs[i].record && !records_before(s, p, &needs[i], told))
      return 1;
    if (p->stream_wait(p->self, handle, marks_of(s, needs[i].on)->list[needs[i].mark].event) != 0)
      return 1;
  }
  return 0;
}

/* Nanoseconds between two looks at an event: far less than a step of a program, and
 * enough for a thread not to take a core from others. */
enum { LOOK_EVERY = 20000 };

static uint64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* await waits for one event on the host until a time of the clock. Zero is success, 1 if it is
 * not done by then, -1 if the device does not say. */
static int await(const sp_prim *p, void *event, uint64_t until) {
  const struct timespec pause = {.tv_nsec = LOOK_EVERY};
  int done;
  while ((done = p->event_done(p->self, event)) == 0) {
    if (clock_now() >= until)
      return 1;
    nanosleep(&pause, NULL);
  }
  return done < 0 ? -1 : 0;
}

int sp_streams_await(sp_streams *s, const sp_prim *p, sp_need *needs, int count, uint64_t told, uint64_t limit) {
  uint64_t until = clock_now() + limit;
  for (int i = 0; i < count; i++)
    if (needs[i].record && !records_before(s, p, &needs[i], told))
      return -1;
  int result = 0;
  for (int i = 0; i < count && result == 0; i++)
    result = await(p, marks_of(s, needs[i].on)->list[needs[i].mark].event, until);
  return result;
}

/* keep keeps the last mark of the whole device that had been recorded before an exchange. */
static void keep(sp_streams *s, sp_exchange *e) {
  sp_mark *list = s->whole.list;
  int last = -1, kept = 0;
  for (int i = 0; i < SP_STREAM_EVENTS; i++) {
    kept += list[i].kept > 0;
    if (!list[i].busy && list[i].tick > 0 && list[i].settled < e->tick && (last < 0 || list[i].tick > list[last].tick))
      last = i;
  }
  if (last < 0 || (list[last].kept == 0 && kept == SP_KEPT))
    return;
  e->before = last;
  list[last].kept++;
}

static void unkeep(sp_streams *s, sp_exchange *e) {
  if (e->before >= 0)
    s->whole.list[e->before].kept--;
  e->before = -1;
}

/* unused is an exchange's index that is not taken, or SP_EXCHANGES. */
static int unused(const sp_streams *s) {
  int i = 0;
  while (i < SP_EXCHANGES && s->exchanges[i].tick != 0)
    i++;
  return i;
}

/* last_awaited is the exchange that began last of those before a tick that one of these
 * streams awaits, and whose events are not just being recorded; -1 if there is none. */
static int last_awaited(const sp_streams *s, uint64_t before, uint64_t streams) {
  int last = -1;
  for (int i = 0; i < SP_EXCHANGES; i++) {
    const sp_exchange *e = &s->exchanges[i];
    if ((e->awaited & streams) != 0 && e->recording == 0 && e->tick < before && (last < 0 || e->tick > s->exchanges[last].tick))
      last = i;
  }
  return last;
}

/* join makes one exchange of the last two that the same stream awaits. The event of the
 * later one is behind both. */
static void join(sp_streams *s) {
  int later = last_awaited(s, UINT64_MAX, UINT64_MAX);
  int earlier = later < 0 ? -1 : last_awaited(s, s->exchanges[later].tick, s->exchanges[later].awaited);
  if (earlier < 0)
    return;
  sp_exchange *e = &s->exchanges[later], *gone = &s->exchanges[earlier];
  e->tick = gone->tick;
  e->awaited &= gone->awaited;
  e->number = 0;
  gone->tick = gone->awaited = 0;
}

uint64_t sp_streams_begin(sp_streams *s, uint64_t tick) {
  if (!s->has_whole)
    return 0;
  if (unused(s) == SP_EXCHANGES)
    join(s);
  int i = unused(s);
  if (i == SP_EXCHANGES)
    i = s->latest;
  sp_exchange *e = &s->exchanges[i];
  uint64_t number = ++s->told * SP_EXCHANGES + (uint64_t)i;
  e->number = e->tick == 0 ? number : 0;
  e->open++;
  e->awaited = 0;
  if (e->tick == 0 || tick < e->tick)
    e->tick = tick;
  if (e->before < 0)
    keep(s, e);
  s->latest = i;
  return number;
}

uint64_t sp_streams_since(const sp_streams *s, uint64_t number) { return s->told - number / SP_EXCHANGES; }

/* What has been recorded so far may be before the exchange, and so may what is just being
 * recorded. */
int sp_streams_enqueued(sp_streams *s, uint64_t number) {
  int i = (int)(number % SP_EXCHANGES);
  sp_exchange *e = &s->exchanges[i];
  if (number == 0 || e->open == 0 || (e->number != 0 && e->number != number))
    return -1;
  e->open--;
  if (e->open > 0)
    return -1;
  e->recorded = 0;
  e->first = e->serial + 1;
  return i;
}

void sp_streams_awaited(sp_streams *s, uint64_t number, int stream) {
  for (int i = 0; i < SP_EXCHANGES; i++) {
    sp_exchange *e = &s->exchanges[i];
    if (e->tick == 0 || e->open > 0 || e->number != number)
      continue;
    e->awaited |= UINT64_C(1) << stream;
    unkeep(s, e);
  }
}

uint64_t sp_streams_recording(sp_streams *s, int exchange) {
  sp_exchange *e = &s->exchanges[exchange];
  if (e->recording++ == 0)
    e->making = s->now;
  return ++e->serial;
}

int sp_streams_record_exchange(sp_streams *s, const sp_prim *p, int exchange) {
  return prepare(s, p) ? record_whole(p, s->exchanges[exchange].event) : 1;
}

/* lose notes that the device has no events of the whole device. Then exchanges cannot
 * be followed. */
static void lose(sp_streams *s) {
  s->has_whole = 0;
  for (int i = 0; i < SP_EXCHANGES; i++) {
    s->exchanges[i].tick = s->exchanges[i].awaited = 0;
    s->exchanges[i].open = 0;
    unkeep(s, &s->exchanges[i]);
  }
}

void sp_streams_recorded(sp_streams *s, int exchange, uint64_t serial, int failed) {
  sp_exchange *e = &s->exchanges[exchange];
  e->recording--;
  if (!failed && serial >= e->first) {
    e->recorded = 1;
    e->covers = e->making;
  }
  if (failed == SP_NEVER)
    lose(s);
}

int sp_streams_exchanging(const sp_streams *s) { return since(s, HOST) != UINT64_MAX; }

int sp_streams_oldest(const sp_streams *s) {
  int oldest = -1;
  for (int i = 0; i < SP_EXCHANGES; i++) {
    const sp_exchange *e = &s->exchanges[i];
    if (e->tick != 0 && e->open == 0 && e->recording == 0 && (oldest < 0 || e->tick < s->exchanges[oldest].tick))
      oldest = i;
  }
  return oldest;
}

void sp_streams_over(sp_streams *s, int exchange, uint64_t serial) {
  sp_exchange *e = &s->exchanges[exchange];
  if (e->tick == 0 || e->open > 0 || e->serial != serial || e->recording > 0)
    return;
  e->tick = e->awaited = 0;
  unkeep(s, e);
  s->done = latest(s->done, e->covers);
}

int sp_streams_next(sp_streams *s) {
  int next = -1;
  sp_mark *list = s->whole.list;
  for (int i = 0; i < SP_STREAM_EVENTS; i++)
    if (!list[i].busy && list[i].tick > s->done && (next < 0 || list[i].tick < list[next].tick))
      next = i;
  if (next >= 0)
    list[next].awaited++;
  return next;
}

void sp_streams_looked(sp_streams *s, int mark, int done) {
  sp_mark *m = &s->whole.list[mark];
  m->awaited--;
  if (done)
    s->done = latest(s->done, m->tick);
}

void sp_streams_all_done(sp_streams *s, uint64_t tick) { s->done = latest(s->done, tick); }

void sp_streams_settle(sp_streams *s, int stream, const sp_need *needs, int count, int performed) {
  for (int i = 0; i < count; i++) {
    sp_mark *m = &marks_of(s, needs[i].on)->list[needs[i].mark];
    if (needs[i].record) {
      m->busy = 0;
      m->tick = performed ? needs[i].tick : 0;
      m->settled = s->now;
    } else {
      m->awaited--;
    }
    if (needs[i].lost)
      lose(s);
    if (performed && stream >= 0 && needs[i].tick > s->list[stream]->waited[needs[i].on])
      s->list[stream]->waited[needs[i].on] = needs[i].tick;
  }
}
