/* host.c: the conformance suite, and what only a simulated device can show, on
 * the host primitives: with virtual memory, and with separate allocations. */
#include "../prim_host.h"

#include "conformance.h"

enum { MIB = 1 << 20 };

static int partial;

static sp_prim open_host(uint64_t capacity) {
  sp_prim prim;
  sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = capacity, .granularity = 2 * MIB, .partial = partial};
  DEMAND(sp_host_open(&options, &prim));
  return prim;
}

static stplan_device *fresh(sp_prim *prim) {
  stplan_device *d;
  *prim = open_host(UINT64_C(256) * MIB);
  DEMAND(stplan_open(prim, NULL, 0, &d) == STPLAN_OK);
  return d;
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

int main(void) {
  conformance_device host = {.open = open_host, .stream = {0, 7, 9}};
  for (partial = 0; partial < 2; partial++) {
    conformance(&host);
    captures_are_left_alone();
    streams_are_bounded();
    exhaustion_gives_idle_memory_back();
    idle_memory_moves();
  }
  return 0;
}
