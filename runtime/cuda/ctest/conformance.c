#include "conformance.h"

#include <string.h>

enum { MIB = 1 << 20 };

static const conformance_device *device;

static stplan_device *fresh(void) {
  stplan_device *d;
  sp_prim prim = device->open(UINT64_C(256) * MIB);
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  return d;
}

static stplan_counters counters(stplan_device *d) {
  stplan_counters c;
  stplan_read(d, &c);
  return c;
}

static uint64_t get(stplan_device *d, size_t size, int stream) {
  stplan_status status;
  uint64_t p = stplan_malloc(d, size, device->stream[stream], NULL, &status);
  DEMAND(p != 0 && status == STPLAN_OK);
  return p;
}

static void put(stplan_device *d, uint64_t p, int stream) { DEMAND(stplan_free(d, p, device->stream[stream]) == STPLAN_OK); }

static void blocks_are_aligned_and_apart(void) {
  stplan_device *d = fresh();
  uint64_t p[64];
  for (int i = 0; i < 64; i++) {
    p[i] = get(d, (size_t)(1 + 997 * i), 0);
    DEMAND(p[i] % 512 == 0);
    for (int k = 0; k < i; k++)
      DEMAND(p[k] + 1 + 997 * (uint64_t)k <= p[i] || p[i] + 1 + 997 * (uint64_t)i <= p[k]);
  }
  for (int i = 0; i < 64; i++)
    put(d, p[i], 0);
  stplan_counters c = counters(d);
  DEMAND(c.allocated_bytes == 0 && c.allocations == 64 && c.frees == 64 && c.waits == 0);
  DEMAND(c.peak_allocated_bytes <= c.peak_reserved_bytes);
  stplan_close(d);
}

static void nothing_is_asked_before_the_first_request(void) {
  stplan_device *d = fresh();
  DEMAND(counters(d).reserved_bytes == 0);
  DEMAND(stplan_malloc(d, 0, device->stream[0], NULL, NULL) == 0);
  DEMAND(counters(d).reserved_bytes == 0 && counters(d).failed_allocations == 0);
  stplan_close(d);
}

static void a_stream_reuses_its_memory_at_once(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, 4 * MIB, 0);
  put(d, p, 0);
  DEMAND(get(d, 4 * MIB, 0) == p);
  DEMAND(counters(d).waits == 0);
  stplan_close(d);
}

static void another_stream_waits_once(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, 4 * MIB, 0);
  put(d, p, 0);
  DEMAND(get(d, 4 * MIB, 1) == p);
  DEMAND(counters(d).waits == 1);
  /* It has waited for the first stream up to here, and need not wait for itself. */
  put(d, p, 1);
  DEMAND(get(d, 4 * MIB, 1) == p);
  DEMAND(counters(d).waits == 1);
  stplan_close(d);
}

static void a_recorded_stream_is_waited_for(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, 4 * MIB, 0);
  DEMAND(stplan_record_stream(d, p, device->stream[1]) == STPLAN_OK);
  put(d, p, 0);
  DEMAND(get(d, 4 * MIB, 0) == p);
  stplan_counters c = counters(d);
  DEMAND(c.waits == 1 && c.events_recorded >= 1);
  stplan_close(d);
}

static void a_free_on_another_stream_is_a_use(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, 4 * MIB, 0);
  put(d, p, 2);
  DEMAND(get(d, 4 * MIB, 0) == p);
  DEMAND(counters(d).waits == 1);
  stplan_close(d);
}

static void memory_without_a_wait_is_preferred(void) {
  stplan_device *d = fresh();
  uint64_t ours = get(d, 8 * MIB, 0), wall = get(d, MIB, 0), theirs = get(d, 8 * MIB - 512, 1), end = get(d, MIB, 0);
  put(d, theirs, 1);
  put(d, ours, 0);
  DEMAND(get(d, 8 * MIB - 512, 0) == ours); /* theirs fits better by 512 B */
  DEMAND(counters(d).waits == 0);
  put(d, wall, 0);
  put(d, end, 0);
  stplan_close(d);
}

static void bad_frees_are_refused_and_counted(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, MIB, 0);
  put(d, p, 0);
  DEMAND(stplan_free(d, p, device->stream[0]) == STPLAN_BAD_POINTER);
  DEMAND(stplan_free(d, p + 512, device->stream[0]) == STPLAN_BAD_POINTER);
  DEMAND(stplan_free(d, 0, device->stream[0]) == STPLAN_BAD_POINTER);
  DEMAND(stplan_free(d, UINT64_MAX, device->stream[0]) == STPLAN_BAD_POINTER);
  DEMAND(stplan_record_stream(d, p, device->stream[1]) == STPLAN_BAD_POINTER);
  DEMAND(counters(d).refused_frees == 4 && counters(d).frees == 1);
  stplan_close(d);
}

static void limits_hold(void) {
  stplan_device *d = fresh();
  stplan_status status;
  DEMAND(stplan_malloc(d, SIZE_MAX, device->stream[0], NULL, &status) == 0 && status == STPLAN_NO_MEMORY);
  stplan_set_limit(d, 16 * MIB);
  uint64_t p = get(d, 12 * MIB, 0);
  DEMAND(stplan_malloc(d, 12 * MIB, device->stream[0], NULL, &status) == 0 && status == STPLAN_NO_MEMORY);
  DEMAND(counters(d).failed_allocations == 2 && counters(d).peak_reserved_bytes <= 16 * MIB);
  put(d, p, 0);
  /* Twelve idle MiB are given back before sixteen are refused. */
  DEMAND(get(d, 16 * MIB, 0) != 0);
  DEMAND(counters(d).peak_reserved_bytes <= 16 * MIB);
  stplan_close(d);
}

static void small_and_large_lend_to_each_other(void) {
  stplan_device *d = fresh();
  stplan_set_limit(d, 8 * MIB);
  uint64_t large = get(d, 8 * MIB, 0), hold = 0;
  DEMAND(stplan_malloc(d, 512, device->stream[0], NULL, NULL) == 0);
  put(d, large, 0);
  large = get(d, 4 * MIB, 0);
  hold = get(d, 4 * MIB - 512, 0);
  DEMAND(get(d, 512, 0) != 0);
  put(d, large, 0);
  put(d, hold, 0);
  stplan_close(d);
}

static void idle_memory_is_given_back(void) {
  stplan_device *d = fresh();
  uint64_t p = get(d, 32 * MIB, 0), q = get(d, 1000, 1);
  put(d, p, 0);
  uint64_t before = counters(d).reserved_bytes;
  uint64_t given = stplan_empty_cache(d);
  DEMAND(given >= 32 * MIB && counters(d).reserved_bytes == before - given);
  put(d, q, 1);
  stplan_empty_cache(d);
  DEMAND(counters(d).reserved_bytes == 0);
  put(d, get(d, 32 * MIB, 0), 0);
  stplan_close(d);
}

static void counters_outlive_the_object(void) {
  char path[] = "counters.bin";
  stplan_device *d = fresh();
  DEMAND(stplan_share(d, path) == STPLAN_OK);
  put(d, get(d, MIB, 0), 0);
  stplan_counters last = counters(d), read;
  stplan_close(d);
  FILE *f = fopen(path, "rb");
  DEMAND(f != NULL && fread(&read, sizeof read, 1, f) == 1);
  fclose(f);
  remove(path);
  DEMAND(memcmp(&read, &last, sizeof read) == 0 && read.fields == sizeof read / 8 && read.allocations == 1);
}

/* random_program keeps a model of what is live beside the runtime. */
static void random_program(void) {
  enum { LIVE = 300, STEPS = 20000 };
  struct {
    uint64_t address, size;
  } live[LIVE];
  int count = 0;
  uint64_t seed = 1, bytes = 0;
  stplan_device *d = fresh();
  for (int step = 0; step < STEPS; step++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    uint64_t r = seed >> 33;
    if (count == LIVE || (count > 0 && r % 2 == 0)) {
      int i = (int)(r / 2 % (uint64_t)count);
      put(d, live[i].address, (int)(r >> 20) % 3);
      bytes -= live[i].size;
      live[i] = live[--count];
      continue;
    }
    size_t size = (size_t)1 << (r / 2 % 19);
    size += r % size;
    uint64_t p = get(d, size, (int)(r >> 20) % 3);
    for (int i = 0; i < count; i++)
      DEMAND(live[i].address + live[i].size <= p || p + size <= live[i].address);
    live[count].address = p;
    live[count++].size = (size + 511) / 512 * 512;
    bytes += live[count - 1].size;
    DEMAND(counters(d).allocated_bytes == bytes);
    if (step % 1000 == 0)
      stplan_empty_cache(d);
  }
  while (count > 0)
    put(d, live[--count].address, 0);
  stplan_empty_cache(d);
  DEMAND(counters(d).reserved_bytes == 0);
  stplan_close(d);
}

void conformance(const conformance_device *on) {
  device = on;
  blocks_are_aligned_and_apart();
  nothing_is_asked_before_the_first_request();
  a_stream_reuses_its_memory_at_once();
  another_stream_waits_once();
  a_recorded_stream_is_waited_for();
  a_free_on_another_stream_is_a_use();
  memory_without_a_wait_is_preferred();
  bad_frees_are_refused_and_counted();
  limits_hold();
  small_and_large_lend_to_each_other();
  idle_memory_is_given_back();
  counters_outlive_the_object();
  random_program();
}
