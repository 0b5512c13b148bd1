/* host.c: the conformance suite, and what only a simulated device can show, on
 * the host primitives: with virtual memory, and with separate allocations. */
#include <string.h>
#include <time.h>

#include "../prim_host.h"
#include "../streams.h"

#include "conformance.h"

enum { MIB = 1 << 20 };

static int partial, known_only;
static int broken; /* the device cannot be waited for as a whole */
static int (*host_synchronize)(void *);

static int synchronize(void *self) { return broken || host_synchronize(self); }

static sp_prim open_host(uint64_t capacity) {
  sp_prim prim;
  sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = capacity, .granularity = 2 * MIB, .partial = partial, .known_only = known_only, .log = 1};
  DEMAND(sp_host_open(&options, &prim));
  host_synchronize = prim.synchronize;
  prim.synchronize = synchronize;
  return prim;
}

static stplan_device *fresh(sp_prim *prim) {
  stplan_device *d;
  *prim = open_host(UINT64_C(256) * MIB);
  DEMAND(stplan_open(prim, NULL, 0, &d) == STPLAN_OK);
  return d;
}

/* fresh_that_waits is one whose memory cannot be at two addresses: the host waits for what moves. */
static stplan_device *fresh_that_waits(sp_prim *prim) {
  stplan_device *d;
  *prim = open_host(UINT64_C(256) * MIB);
  prim->carry = NULL;
  DEMAND(stplan_open(prim, NULL, 0, &d) == STPLAN_OK);
  return d;
}

/* asked counts what was asked of the device since the last call, by kind. */
static void asked(const sp_prim *prim, int counts[SP_HOST_KINDS]) {
  sp_host_entry entries[64];
  size_t n;
  memset(counts, 0, (SP_HOST_KINDS) * sizeof *counts);
  while ((n = sp_host_take(prim, entries, 64)) > 0)
    for (size_t i = 0; i < n; i++)
      counts[entries[i].kind]++;
}

/* Memory goes from one stream to another behind the whole device, by one event and one
 * wait. If the device has no such events, every known stream is waited for. */
static void another_stream_waits_for_all(void) {
  sp_prim prim;
  int counts[SP_HOST_KINDS];
  stplan_device *d = fresh(&prim);
  uint64_t p = stplan_malloc(d, 4 * MIB, 1, NULL, NULL), q = stplan_malloc(d, 4 * MIB, 2, NULL, NULL);
  stplan_free(d, stplan_malloc(d, 4 * MIB, 3, NULL, NULL), 3);
  asked(&prim, counts);
  stplan_free(d, p, 1);
  DEMAND(stplan_malloc(d, 4 * MIB, 1, NULL, NULL) == p);
  asked(&prim, counts);
  DEMAND(counts[SP_HOST_WAIT] == 0);
  stplan_free(d, p, 1);
  DEMAND(stplan_malloc(d, 4 * MIB, 2, NULL, NULL) == p);
  asked(&prim, counts);
  DEMAND(counts[SP_HOST_WHOLE] == !known_only && counts[SP_HOST_WAIT] == (known_only ? 2 : 1));
  stplan_free(d, p, 2);
  stplan_free(d, q, 2);
  stplan_close(d);
}

/* exchange enqueues an exchange with another process, and returns its number. */
static uint64_t exchange(stplan_device *d) {
  uint64_t number = stplan_exchange_begins(d);
  stplan_exchange_enqueued(d, number);
  return number;
}

/* elapsed is the seconds that a request takes that memory would have to move for. */
static double elapsed(stplan_device *d, uint64_t size) {
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  DEMAND(stplan_malloc(d, size, 1, NULL, NULL) != 0);
  clock_gettime(CLOCK_MONOTONIC, &after);
  return (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
}

/* scattered takes pieces of memory and frees every second one, and returns how many bytes
 * are free. */
static uint64_t scattered(stplan_device *d) {
  enum { PIECES = 16, PIECE = 8 * MIB };
  uint64_t p[PIECES];
  for (int i = 0; i < PIECES; i++)
    DEMAND((p[i] = stplan_malloc(d, PIECE, 1, NULL, NULL)) != 0);
  for (int i = 0; i < PIECES; i += 2)
    stplan_free(d, p[i], 1);
  return PIECES / 2 * PIECE;
}

/* What is told of a receive. */
enum { NOTHING, THAT_IT_BEGINS, ALL };

/* If every process has enqueued a receive and then needs memory that has to move, none
 * may wait for its receive: memory is added. What nobody told of is waited for, but not
 * for ever, and only once. */
static void nobody_waits_for_an_exchange(int told) {
  sp_prim prim;
  stplan_counters c;
  stplan_device *d = fresh_that_waits(&prim);
  uint64_t bytes = scattered(d), before;
  stplan_free(d, stplan_malloc(d, 512, 2, NULL, NULL), 2);
  sp_host_lag(&prim, SP_HOST_STALLED);
  uint64_t receive = told == NOTHING ? 0 : stplan_exchange_begins(d);
  if (told == ALL)
    stplan_exchange_enqueued(d, receive);
  double first = elapsed(d, bytes / 2), second = elapsed(d, bytes / 2);
  stplan_read(d, &c);
  DEMAND(c.moved_bytes == 0 && second < 1 && (told ? first < 1 : first > 1 && first < 60));
  before = c.moved_bytes;
  sp_host_lag(&prim, 0);
  if (told == THAT_IT_BEGINS)
    stplan_exchange_enqueued(d, receive);
  elapsed(d, bytes / 2);
  stplan_read(d, &c);
  DEMAND(c.moved_bytes > before);
  /* Then it is over, whoever told of it, and one stream waits for another again. */
  uint64_t p = stplan_malloc(d, 20 * MIB, 1, NULL, NULL), waits = c.waits;
  DEMAND(p != 0);
  sp_host_lag(&prim, SP_HOST_STALLED);
  stplan_free(d, p, 1);
  DEMAND(stplan_malloc(d, 20 * MIB, 2, NULL, NULL) == p);
  stplan_read(d, &c);
  DEMAND(c.waits == waits + 1);
  stplan_close(d);
}

/* What moves is not waited for by the host, if it can be at two addresses: not if the device has stopped,
 * and not if nobody told of the exchange that it waits for. The stream that used it needs no wait
 * either. Memory goes back to the device once the device goes on. */
static void nobody_waits_for_what_moves(void) {
  sp_prim prim;
  stplan_counters before, after;
  stplan_device *d = fresh(&prim);
  uint64_t bytes = scattered(d);
  sp_host_lag(&prim, SP_HOST_STALLED);
  stplan_read(d, &before);
  DEMAND(elapsed(d, bytes / 2) < 1);
  stplan_read(d, &after);
  DEMAND(after.moved_bytes > before.moved_bytes && after.waits == before.waits && after.peak_reserved_bytes == before.peak_reserved_bytes);
  sp_host_lag(&prim, 0);
  stplan_empty_cache(d);
  stplan_read(d, &after);
  DEMAND(after.reserved_bytes < before.reserved_bytes);
  stplan_close(d);
}

/* While an exchange is under way a look may find that the device has done with all that a request
 * would have to wait for. Then the request keeps the memory that was chosen for it, here the one
 * at the lowest address: with a plan, its place. */
static void what_is_done_needs_no_wait(void) {
  enum { SIZE = 4 * MIB };
  sp_prim prim;
  stplan_counters before, after;
  int counts[SP_HOST_KINDS];
  stplan_device *d = fresh(&prim);
  uint64_t lowest = stplan_malloc(d, 2 * SIZE, 1, NULL, NULL), between = stplan_malloc(d, SIZE, 1, NULL, NULL);
  uint64_t smallest = stplan_malloc(d, SIZE, 1, NULL, NULL), behind = stplan_malloc(d, SIZE, 1, NULL, NULL);
  DEMAND(lowest < between && between < smallest && smallest < behind);
  stplan_free(d, stplan_malloc(d, 512, 2, NULL, NULL), 2);
  sp_host_lag(&prim, 1); /* what was recorded before the last event is done */
  stplan_free(d, lowest, 1);
  stplan_free(d, smallest, 1);
  stplan_exchange_enqueued(d, stplan_exchange_begins(d));
  stplan_read(d, &before);
  asked(&prim, counts);
  DEMAND(stplan_malloc(d, SIZE, 2, NULL, NULL) == lowest);
  stplan_read(d, &after);
  asked(&prim, counts);
  DEMAND(after.growths == before.growths && counts[SP_HOST_WAIT] == 0);
  stplan_close(d);
}

/* A pipeline has an exchange under way at any time, since the host is ahead of the device.
 * Memory that the device has finished with is used again all the same; also if one exchange
 * begins, and it is never told whether it was enqueued. */
static void memory_comes_back_between_exchanges(int each) {
  enum { LAG = 20, STEPS = 400, SIZE = 4 * MIB };
  sp_prim prim;
  stplan_counters c;
  stplan_device *d = fresh(&prim);
  stplan_free(d, stplan_malloc(d, 512, 2, NULL, NULL), 2);
  sp_host_lag(&prim, LAG);
  if (!each)
    stplan_exchange_begins(d);
  for (int i = 0; i < STEPS; i++) {
    uint64_t p = stplan_malloc(d, SIZE, 1, NULL, NULL);
    DEMAND(p != 0 && stplan_record_stream(d, p, 2) == STPLAN_OK);
    if (each)
      exchange(d);
    stplan_free(d, p, 1);
  }
  stplan_read(d, &c);
  /* Each step records at least one event of the device, so that is at most LAG steps
   * behind; and what a step frees may have to wait for a later exchange. */
  DEMAND(c.peak_reserved_bytes <= (LAG + 4) * (uint64_t)SIZE);
  stplan_close(d);
}

/* A program that posts its next receive before it awaits the last one always has one that
 * its stream has not been made to wait for. If the device is far behind, memory from before
 * that receive comes back by the last event before it. */
static void receives_ahead_of_need(void) {
  enum { STEPS = 50, FREES = 3 * SP_STREAM_EVENTS, SIZE = 4 * MIB };
  sp_prim prim;
  stplan_counters c;
  stplan_device *d = fresh(&prim);
  uint64_t next = 0;
  stplan_free(d, stplan_malloc(d, 512, 2, NULL, NULL), 2);
  sp_host_lag(&prim, SP_HOST_STALLED);
  for (int i = 0; i < STEPS; i++) {
    uint64_t p = stplan_malloc(d, SIZE, 1, NULL, NULL), awaited = next;
    DEMAND(p != 0 && stplan_record_stream(d, p, 2) == STPLAN_OK);
    next = exchange(d);
    stplan_exchange_awaited(d, awaited, 1);
    stplan_free(d, p, 1);
    for (int k = 0; k < FREES; k++)
      stplan_free(d, stplan_malloc(d, SIZE, 1, NULL, NULL), 1);
  }
  stplan_read(d, &c);
  /* A step's memory may be used from the step after the next on, and there is one block more. */
  DEMAND(c.peak_reserved_bytes <= 6 * (uint64_t)SIZE && c.waits > 0);
  stplan_close(d);
}

/* What was sent or received cannot be waited for while the next receive is under way. It stays
 * apart: its free neighbours are used at once, and all of it again once that is awaited, or
 * if everything is given back. */
static void what_cannot_be_waited_for_stays_apart(int trimmed) {
  enum { SIZE = 16 * MIB };
  sp_prim prim;
  stplan_counters before, c;
  stplan_memory memory;
  stplan_device *d = fresh(&prim);
  uint64_t low = stplan_malloc(d, SIZE, 1, NULL, NULL), sent = stplan_malloc(d, SIZE, 1, NULL, NULL), high = stplan_malloc(d, SIZE, 1, NULL, NULL);
  uint64_t above = stplan_malloc(d, SIZE, 1, NULL, NULL);
  DEMAND(stplan_record_stream(d, sent, 2) == STPLAN_OK);
  sp_host_lag(&prim, SP_HOST_STALLED);
  uint64_t receive = exchange(d);
  stplan_free(d, low, 1);
  stplan_free(d, sent, 1);
  stplan_free(d, high, 1);
  stplan_read(d, &before);
  DEMAND(stplan_release(d, sent, NULL) == STPLAN_BAD_POINTER && stplan_pin(d, sent, SIZE) == STPLAN_BAD_POINTER);
  stplan_exchange_awaited(d, 0, 1); /* it looks for what can be used now */
  uint64_t p = stplan_malloc(d, SIZE, 1, NULL, NULL), q = stplan_malloc(d, SIZE, 1, NULL, NULL);
  DEMAND((p == low && q == high) || (p == high && q == low));
  stplan_survey(d, &memory);
  DEMAND(memory.live == 3 * (uint64_t)SIZE && memory.beside >= SIZE);
  stplan_read(d, &c);
  DEMAND(c.reserved_bytes == before.reserved_bytes && c.waits == 0);
  if (trimmed) {
    /* Nor is it while anything is captured, or if the device cannot be waited for. */
    uint64_t beside = memory.beside;
    stplan_hold(1);
    stplan_hold(1);
    DEMAND(stplan_empty_cache(d) == 0);
    stplan_hold(0);
    DEMAND(stplan_empty_cache(d) == 0); /* there are two captures */
    stplan_hold(0);
    broken = 1;
    stplan_empty_cache(d);
    broken = 0;
    stplan_survey(d, &memory);
    DEMAND(memory.beside == beside);
    sp_host_lag(&prim, 0);
    DEMAND(stplan_empty_cache(d) == SIZE);
    DEMAND(stplan_malloc(d, SIZE, 1, NULL, NULL) != 0);
  } else {
    stplan_exchange_awaited(d, receive, 1);
    DEMAND(stplan_malloc(d, SIZE, 1, NULL, NULL) == sent);
  }
  stplan_read(d, &c);
  DEMAND(c.reserved_bytes == before.reserved_bytes && c.waits == (trimmed ? 0 : 1));
  stplan_free(d, above, 1);
  stplan_close(d);
}

/* A stream that the program has made wait for an exchange may be made to wait for what
 * comes behind that; others may not. */
static void who_awaits_an_exchange_waits_behind_it(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  uint64_t p = stplan_malloc(d, 4 * MIB, 2, NULL, NULL), first = exchange(d), second = exchange(d);
  DEMAND(first != 0 && second != 0 && first != second);
  stplan_free(d, stplan_malloc(d, 512, 1, NULL, NULL), 1);
  sp_host_lag(&prim, SP_HOST_STALLED);
  stplan_free(d, p, 2);
  stplan_exchange_awaited(d, first, 1);
  uint64_t q = stplan_malloc(d, 4 * MIB, 1, NULL, NULL);
  DEMAND(q != p); /* the second is still under way */
  stplan_exchange_awaited(d, second, 1);
  stplan_exchange_awaited(d, 0, 3);
  DEMAND(stplan_malloc(d, 4 * MIB, 3, NULL, NULL) != p);
  DEMAND(stplan_malloc(d, 4 * MIB, 1, NULL, NULL) == p);
  stplan_close(d);
}

/* If there are too many exchanges, one of them stands for several, and has no number: who awaits
 * all the others does not wait behind it, nor who awaits 0, which is no exchange's number. */
static void exchanges_without_a_number(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  uint64_t p = stplan_malloc(d, 4 * MIB, 2, NULL, NULL), numbers[SP_EXCHANGES + 1];
  stplan_free(d, stplan_malloc(d, 512, 1, NULL, NULL), 1);
  sp_host_lag(&prim, SP_HOST_STALLED);
  for (int i = 0; i <= SP_EXCHANGES; i++)
    numbers[i] = exchange(d);
  stplan_free(d, p, 2);
  for (int i = 0; i <= SP_EXCHANGES; i++)
    stplan_exchange_awaited(d, numbers[i], 1);
  stplan_exchange_awaited(d, 0, 1);
  DEMAND(stplan_malloc(d, 4 * MIB, 1, NULL, NULL) != p);
  stplan_close(d);
}

/* An exchange whose event could not be recorded is not over, whatever the device has done. */
static void exchanges_in_captures(void) {
  enum { SIZE = 4 * MIB };
  sp_prim prim;
  stplan_counters c;
  stplan_device *d = fresh(&prim);
  uint64_t p = stplan_malloc(d, SIZE, 1, NULL, NULL);
  stplan_free(d, stplan_malloc(d, 512, 2, NULL, NULL), 2);
  stplan_hold(1);
  exchange(d);
  stplan_free(d, p, 1);
  DEMAND(stplan_malloc(d, SIZE, 2, NULL, NULL) != p); /* it looks whether the exchange is over */
  sp_host_lag(&prim, SP_HOST_STALLED);
  stplan_hold(0);
  DEMAND(stplan_malloc(d, SIZE, 2, NULL, NULL) != p);
  stplan_read(d, &c);
  DEMAND(c.waits == 0);
  stplan_close(d);
}

/* While a stream is captured, nothing is recorded on it and it waits for
 * nothing: it gets new memory, which needs neither. */
static void captures_are_left_alone(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  stplan_counters c;
  uint64_t p = stplan_malloc(d, 4 * MIB, 1, NULL, NULL);
  stplan_free(d, p, 1);
  sp_host_capture(&prim, 1);
  uint64_t q = stplan_malloc(d, 4 * MIB, 2, NULL, NULL);
  stplan_read(d, &c);
  DEMAND(q != 0 && q != p && c.waits == 0 && c.events_recorded == 0);
  stplan_free(d, q, 1); /* a use on the captured stream */
  sp_host_capture(&prim, UINT64_MAX);
  DEMAND(stplan_malloc(d, 4 * MIB, 2, NULL, NULL) != 0);
  stplan_read(d, &c);
  DEMAND(c.waits >= 1);
  stplan_close(d);
}

/* While anything is captured, an event of the whole device would break that: memory of
 * other streams is left where it is. */
static void nothing_of_the_whole_device_in_captures(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  uint64_t p = stplan_malloc(d, 4 * MIB, 1, NULL, NULL);
  stplan_free(d, p, 1);
  stplan_hold(1);
  uint64_t q = stplan_malloc(d, 4 * MIB, 2, NULL, NULL);
  DEMAND(q != 0 && (q == p) == known_only);
  stplan_hold(0);
  DEMAND(known_only || stplan_malloc(d, 4 * MIB, 2, NULL, NULL) == p);
  stplan_free(d, q, 2);
  stplan_hold(1); /* and the stream's own is taken first, however large */
  uint64_t r = stplan_malloc(d, MIB, 1, NULL, NULL), s = stplan_malloc(d, 64 * MIB, 2, NULL, NULL);
  stplan_free(d, r, 1);
  stplan_free(d, s, 2);
  DEMAND(stplan_malloc(d, MIB, 2, NULL, NULL) != r || known_only);
  stplan_hold(0);
  stplan_close(d);
}

static void streams_are_bounded(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  stplan_status status;
  for (uint64_t s = 0; s < 64; s++)
    DEMAND(stplan_malloc(d, 512, s, NULL, NULL) != 0);
  DEMAND(stplan_malloc(d, 512, 64, NULL, &status) == 0 && status == STPLAN_BAD_STREAM);
  uint64_t p = stplan_malloc(d, 512, 63, NULL, NULL);
  DEMAND(stplan_record_stream(d, p, 64) == STPLAN_BAD_STREAM);
  for (uint64_t s = 0; s < 63; s++)
    DEMAND(stplan_record_stream(d, p, s) == STPLAN_OK);
  DEMAND(stplan_free(d, p, 63) == STPLAN_OK);
  DEMAND(stplan_malloc(d, 512, 63, NULL, NULL) == p);
  stplan_close(d);
}

/* Memory that is free in pieces is given back, and taken again in one piece. */
static void exhaustion_gives_idle_memory_back(void) {
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  uint64_t p[64];
  for (int i = 0; i < 64; i++)
    DEMAND((p[i] = stplan_malloc(d, 4 * MIB, 1, NULL, NULL)) != 0);
  for (int i = 0; i < 64; i += 2)
    stplan_free(d, p[i], 1);
  DEMAND(stplan_malloc(d, 100 * MIB, 1, NULL, NULL) != 0);
  stplan_close(d);
}

/* A large request takes the memory of free pieces: no more is reserved than is allocated. */
static void idle_memory_moves(void) {
  enum { PIECES = 8, PIECE = 8 * MIB };
  sp_prim prim;
  stplan_device *d = fresh(&prim);
  stplan_counters c;
  uint64_t p[2 * PIECES];
  for (int i = 0; i < 2 * PIECES; i++)
    DEMAND((p[i] = stplan_malloc(d, PIECE, 1, NULL, NULL)) != 0);
  for (int i = 0; i < 2 * PIECES; i += 2)
    stplan_free(d, p[i], 1);
  uint64_t all = stplan_malloc(d, PIECES * PIECE, 1, NULL, NULL);
  DEMAND(all != 0);
  stplan_read(d, &c);
  DEMAND(c.moved_bytes == PIECES * PIECE && c.peak_reserved_bytes == c.peak_allocated_bytes);
  /* The memory comes back to the pieces. */
  stplan_free(d, all, 1);
  for (int i = 0; i < 2 * PIECES; i += 2)
    DEMAND((p[i] = stplan_malloc(d, PIECE, 1, NULL, NULL)) != 0);
  stplan_read(d, &c);
  DEMAND(c.reserved_bytes == c.allocated_bytes);
  /* While a graph is captured nothing leaves. */
  for (int i = 0; i < 2 * PIECES; i += 2)
    stplan_free(d, p[i], 1);
  stplan_hold(1);
  DEMAND(stplan_malloc(d, 2 * PIECES * PIECE, 1, NULL, NULL) != 0);
  uint64_t before = c.moved_bytes;
  stplan_read(d, &c);
  DEMAND(c.moved_bytes == before);
  stplan_hold(0);
  stplan_close(d);
}

/* The simulated device is done with an event once the exchanges that it is behind are over, or once the host has
 * looked at nothing else for long. */
static void the_device_has_exchanges(void) {
  sp_prim prim = open_host(UINT64_C(256) * MIB);
  void *before, *behind, *both;
  DEMAND(prim.event_create(prim.self, &before) == 0 && prim.event_create(prim.self, &behind) == 0 && prim.event_create(prim.self, &both) == 0);
  DEMAND(prim.event_record(prim.self, before, 0) == 0);
  uint64_t first = sp_host_exchange_begins(&prim);
  DEMAND(prim.event_record_whole(prim.self, behind) == 0);
  uint64_t second = sp_host_exchange_begins(&prim);
  DEMAND(prim.event_record_whole(prim.self, both) == 0);
  DEMAND(prim.event_done(prim.self, before) && !prim.event_done(prim.self, behind) && !prim.event_done(prim.self, both));
  sp_host_exchange_over(&prim, second);
  DEMAND(!prim.event_done(prim.self, behind) && !prim.event_done(prim.self, both)); /* the first is under way */
  sp_host_exchange_over(&prim, first);
  sp_host_exchange_over(&prim, first); /* which it is already */
  DEMAND(prim.event_done(prim.self, behind) && prim.event_done(prim.self, both));
  sp_host_exchange_begins(&prim);
  DEMAND(prim.event_record_whole(prim.self, behind) == 0);
  sp_host_exchange_begins(&prim);
  DEMAND(prim.event_record_whole(prim.self, both) == 0);
  int looks = 1;
  while (looks < 1000 && !prim.event_done(prim.self, behind))
    looks++;
  DEMAND(looks > 2 && looks < 100);
  DEMAND(!prim.event_done(prim.self, both)); /* the other exchange is under way */
  prim.event_destroy(prim.self, before);
  prim.event_destroy(prim.self, behind);
  prim.event_destroy(prim.self, both);
  sp_host_drop(&prim);
}

int main(void) {
  conformance_device host = {.open = open_host, .stream = {0, 7, 9}};
  for (int kind = 0; kind < 4; kind++) {
    partial = kind % 2;
    known_only = kind / 2;
    conformance(&host);
    another_stream_waits_for_all();
    captures_are_left_alone();
    nothing_of_the_whole_device_in_captures();
    streams_are_bounded();
    exhaustion_gives_idle_memory_back();
    idle_memory_moves();
  }
  partial = 1;
  known_only = 0;
  the_device_has_exchanges();
  nobody_waits_for_what_moves();
  nobody_waits_for_an_exchange(ALL);
  nobody_waits_for_an_exchange(THAT_IT_BEGINS);
  nobody_waits_for_an_exchange(NOTHING);
  what_is_done_needs_no_wait();
  memory_comes_back_between_exchanges(1);
  memory_comes_back_between_exchanges(0);
  who_awaits_an_exchange_waits_behind_it();
  exchanges_without_a_number();
  exchanges_in_captures();
  receives_ahead_of_need();
  what_cannot_be_waited_for_stays_apart(0);
  what_cannot_be_waited_for_stays_apart(1);
  return 0;
}
