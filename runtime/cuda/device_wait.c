#include "device_wait.h"

#include "device_defer.h"
#include "device_history.h"

/* Nanoseconds. The longest that a request waits for memory to become idle that is to
 * move. What takes longer may be waiting for what this process does next, as a receive
 * does that nobody told of: then memory is added instead. Ranks that are only late are
 * seldom late by so much. */
#define AWAIT_MOST UINT64_C(5000000000)

/* record records the event of an exchange. If that fails now, it is done later, since
 * the exchange is under way all the same. Locked; lets go of the lock. */
static void record(stplan_device *d, int exchange) {
  uint64_t serial = sp_streams_recording(&d->streams, exchange);
  sp_device_unlock(d);
  int failed = sp_streams_record_exchange(&d->streams, &d->prim, exchange);
  sp_device_lock(d);
  sp_streams_recorded(&d->streams, exchange, serial, failed);
}

/* look_for_exchanges finds out which are over. Locked; may let go of the lock. */
static void look_for_exchanges(stplan_device *d) {
  int i, done = 1;
  while (done && (i = sp_streams_oldest(&d->streams)) >= 0) {
    if (!d->streams.exchanges[i].recorded)
      record(d, i);
    sp_exchange e = d->streams.exchanges[i];
    if (!e.recorded)
      return;
    sp_device_unlock(d);
    done = d->prim.event_done(d->prim.self, e.event) > 0;
    sp_device_lock(d);
    if (done)
      sp_streams_over(&d->streams, i, e.serial);
  }
}

int sp_device_poll(stplan_device *d) {
  int i, done = 1;
  while (done && (i = sp_streams_next(&d->streams)) >= 0) {
    void *event = d->streams.whole.list[i].event;
    sp_device_unlock(d);
    done = d->prim.event_done(d->prim.self, event) > 0;
    sp_device_lock(d);
    sp_streams_looked(&d->streams, i, done);
  }
  return !done;
}

int sp_device_look(stplan_device *d) {
  look_for_exchanges(d);
  if (sp_streams_exchanging(&d->streams))
    sp_device_poll(d);
  return sp_device_recall(d);
}

uint64_t stplan_exchange_begins(stplan_device *d) {
  sp_device_lock(d);
  sp_device_history_room(d);
  uint64_t number = sp_streams_begin(&d->streams, ++d->streams.now);
  sp_device_history_exchange(d, number);
  sp_device_unlock(d);
  return number;
}

/* enqueued notes that an exchange has been enqueued. Locked; may let go of the lock. */
static void enqueued(stplan_device *d, uint64_t number) {
  int i = sp_streams_enqueued(&d->streams, number);
  if (i >= 0)
    record(d, i);
}

void stplan_exchange_enqueued(stplan_device *d, uint64_t exchange) {
  sp_device_lock(d);
  enqueued(d, exchange);
  sp_device_unlock(d);
}

void stplan_exchange_awaited(stplan_device *d, uint64_t exchange, stplan_stream stream) {
  sp_device_lock(d);
  sp_device_history_room(d);
  int index = sp_streams_find(&d->streams, stream);
  if (exchange != 0 && index >= 0) {
    sp_streams_awaited(&d->streams, exchange, index);
    sp_device_history_await(d, exchange, index);
  }
  sp_device_recall(d);
  sp_device_unlock(d);
}

/* What is not done in time is taken for an exchange that nobody told of, so that it is
 * waited for once and not by every request. */
int sp_device_await(stplan_device *d, const sp_clock *uses) {
  sp_need needs[SP_SOURCES];
  sp_device_look(d);
  int count = sp_streams_needs_of_host(&d->streams, uses, needs);
  if (count < 0)
    return 1;
  uint64_t tick = d->streams.now, told = d->streams.told;
  sp_device_unlock(d);
  int result = sp_streams_await(&d->streams, &d->prim, needs, count, told, AWAIT_MOST);
  sp_device_lock(d);
  for (int i = 0; i < count; i++)
    if (!needs[i].record)
      tick = sp_least(tick, needs[i].tick);
  sp_streams_settle(&d->streams, -1, needs, count, result >= 0);
  if (result > 0)
    enqueued(d, sp_streams_begin(&d->streams, tick));
  return result != 0;
}
