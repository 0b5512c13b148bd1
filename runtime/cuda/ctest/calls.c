/* calls.c: any calls of the interface in any order, with any arguments that its contract
 * allows: odd sizes and addresses, many streams, pins, pauses, limits, holds, exchanges, and
 * moving that ends. After each few calls all accounts of memory have to agree, with each other and
 * with the blocks that were handed out.
 *
 *   calls SEQUENCES FIRST [PLAN.bin]: that many sequences of calls, each on a fresh device, with
 *   the seeds from FIRST on */
#include <string.h>

#include "../prim_host.h"
#include "../stplan.h"

#include "conformance.h"

enum { MIB = 1 << 20, CALLS = 600, LIVE = 96, PINS = 6, OPEN = 8, RANGES = 1 << 14, STREAMS = 70 };

#define CAPACITY (UINT64_C(512) * MIB)

typedef struct {
  uint64_t address, size, stream;
} block;

static struct {
  sp_prim prim;
  stplan_device *device;
  uint64_t seed;
  block live[LIVE];
  int count;
  block pins[PINS];
  int pinned;
  uint64_t exchange, foreign, failed;
  uint64_t open[OPEN]; /* exchanges that have begun, and were not told to have been enqueued */
  int opened;
  size_t step; /* of the plan's sizes */
  int held, planned;
} now;

static uint64_t allocations, on_plan, waits, moved; /* of all sequences */

static uint64_t draw(uint64_t below) {
  now.seed = now.seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (now.seed >> 33) % below;
}

/* odd is a number that is often at an edge. */
static uint64_t odd(void) {
  static const uint64_t edges[] = {0, 1, 511, 512, 2 * MIB, 20 * MIB, UINT64_C(1) << 40, (UINT64_C(1) << 40) + 512, UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX - 511, UINT64_MAX};
  return draw(3) == 0 ? draw(CAPACITY) : edges[draw(sizeof edges / sizeof *edges)];
}

/* The sizes of the plan of safety_test.go, in its order. */
static const uint64_t cycle[] = {4096, 65536, MIB, 303104, 4096, 2 * MIB, 8192, 131072};

static uint64_t size_of_request(void) {
  switch (draw(12)) {
  case 0: return odd();
  case 1: return 20 * MIB + draw(60 * MIB);
  case 2: case 3: return 2 * MIB * (1 + draw(6));
  default: return 1 + draw(UINT64_C(1) << (5 + draw(19)));
  }
}

/* stream is mostly one of four; the device object has room for 64. */
static uint64_t stream(void) { return draw(10) == 0 ? draw(STREAMS) : draw(4); }

static void request(void) {
  stplan_status status;
  if (now.count == LIVE)
    return;
  block *b = &now.live[now.count];
  *b = (block){.size = size_of_request(), .stream = stream()};
  if (now.planned && draw(8) > 0)
    *b = (block){.size = cycle[now.step++ % (sizeof cycle / sizeof *cycle)], .stream = 0};
  b->address = stplan_malloc(now.device, b->size, b->stream, NULL, &status);
  DEMAND(b->address != 0 || b->size == 0 || status == STPLAN_NO_MEMORY || status == STPLAN_BAD_STREAM);
  DEMAND(b->address == 0 || (b->address % 512 == 0 && status == STPLAN_OK));
  now.failed += b->address == 0 && b->size != 0;
  now.count += b->address != 0;
}

static void end(void) {
  if (now.count == 0)
    return;
  int k = (int)draw((uint64_t)now.count);
  const block b = now.live[k];
  stplan_range was;
  if (draw(4) == 0) {
    stplan_status status = stplan_free(now.device, b.address, stream());
    DEMAND(status == STPLAN_OK || status == STPLAN_BAD_STREAM);
    if (status != STPLAN_OK)
      return;
  } else {
    DEMAND(stplan_release(now.device, b.address, &was) == STPLAN_OK && was.requested == b.size && was.stream == b.stream);
  }
  now.live[k] = now.live[--now.count];
  DEMAND(stplan_release(now.device, b.address, NULL) == STPLAN_BAD_POINTER);
}

static void pin(void) {
  if (now.pinned == PINS || (now.pinned > 0 && draw(2) == 0)) {
    int k = (int)draw((uint64_t)now.pinned);
    DEMAND(stplan_unpin(now.device, now.pins[k].address, now.pins[k].size) == STPLAN_OK);
    now.pins[k] = now.pins[--now.pinned];
  } else if (now.count > 0) {
    const block *b = &now.live[draw((uint64_t)now.count)];
    uint64_t from = draw(b->size);
    block p = {.address = b->address + from, .size = 1 + draw(b->size - from)};
    DEMAND(stplan_pin(now.device, p.address, p.size) == STPLAN_OK);
    now.pins[now.pinned++] = p;
  }
}

/* refused are arguments that have to be refused, and change nothing. */
static void refused(void) {
  uint64_t address = odd(), size = odd();
  stplan_range range;
  for (int i = 0; i < now.count; i++)
    if (address >= now.live[i].address && address - now.live[i].address < now.live[i].size)
      return;
  now.foreign++;
  DEMAND(stplan_free(now.device, address, stream()) == STPLAN_BAD_POINTER);
  DEMAND(stplan_release(now.device, address, NULL) == STPLAN_BAD_POINTER && stplan_find(now.device, address, &range) == STPLAN_BAD_POINTER);
  DEMAND(stplan_record_stream(now.device, address, stream()) == STPLAN_BAD_POINTER && stplan_pin(now.device, address, size) == STPLAN_BAD_POINTER);
  if (now.count == 0)
    return;
  const block *b = &now.live[draw((uint64_t)now.count)];
  uint64_t occupied = (b->size + 511) / 512 * 512, from = draw(b->size);
  DEMAND(stplan_pin(now.device, b->address + from, occupied - from + 1 + odd() / 2) == STPLAN_BAD_POINTER);
}

/* exchange has one begin, or says of one that it has been enqueued. */
static void exchange(void) {
  if (now.opened < OPEN && draw(2) == 0) {
    now.open[now.opened++] = now.exchange = stplan_exchange_begins(now.device);
  } else if (now.opened > 0) {
    int k = (int)draw((uint64_t)now.opened);
    stplan_exchange_enqueued(now.device, now.open[k]);
    now.open[k] = now.open[--now.opened];
  }
}

static void besides(void) {
  uint64_t bytes = 0;
  stplan_status status;
  switch (draw(24)) {
  case 0: stplan_empty_cache(now.device); break;
  case 1:
    status = stplan_pause(now.device, &bytes);
    DEMAND(status == STPLAN_OK || (now.held && status == STPLAN_HELD));
    DEMAND(bytes == 0 || !now.held);
    break;
  case 2: case 3: {
    uint64_t most = odd();
    status = stplan_resume(now.device, most, &bytes);
    DEMAND(status == STPLAN_OK || status == STPLAN_NO_MEMORY);
    DEMAND(bytes < 2 * MIB || bytes - 2 * MIB < most); /* whole granules */
    break;
  }
  case 4: stplan_set_limit(now.device, draw(2) == 0 ? 0 : odd()); break;
  case 5: stplan_mark(now.device); break;
  case 6: case 7: exchange(); break;
  case 8: stplan_exchange_awaited(now.device, now.exchange, stream()); break;
  case 9: stplan_exchange_awaited(now.device, odd(), odd()); break;
  case 11: stplan_hold(now.held = !now.held); break;
  case 12: sp_host_occupy(&now.prim, draw(2) == 0 ? 0 : draw(CAPACITY)); break;
  case 13: stplan_reset_peaks(now.device); break;
  case 14: if (draw(20) == 0) stplan_stop_moving(now.device); break;
  case 15: if (draw(40) == 0) stplan_keep(now.device); break;
  case 16: sp_host_capture(&now.prim, draw(2) == 0 ? UINT64_MAX : stream()); break;
  case 17: case 18: pin(); break;
  default: refused(); break;
  }
}

static int by_address(const void *a, const void *b) {
  const block *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

static stplan_range ranges[RANGES];

/* there says whether the ranges hold all bytes of [address, end). */
static int there(size_t count, uint64_t address, uint64_t end) {
  for (size_t i = 0; i < count && address < end; i++)
    if (ranges[i].address <= address && address < ranges[i].address + ranges[i].size)
      address = ranges[i].address + ranges[i].size;
  return address >= end;
}

/* agree compares all accounts of memory. */
static void agree(void) {
  stplan_counters c;
  stplan_statistics s;
  stplan_memory m;
  size_t count = stplan_ranges(now.device, ranges, RANGES);
  stplan_read(now.device, &c);
  stplan_measure(now.device, &s);
  stplan_survey(now.device, &m);
  DEMAND(count <= RANGES && c.failed_allocations == now.failed && c.refused_frees == now.foreign);
  qsort(now.live, (size_t)now.count, sizeof *now.live, by_address);
  uint64_t reserved = 0, live = 0, requested = 0, largest = 0;
  int k = 0;
  for (size_t i = 0; i < count; i++) {
    const stplan_range *r = &ranges[i];
    DEMAND(r->size > 0 && (i == 0 || r->address >= ranges[i - 1].address + ranges[i - 1].size));
    reserved += r->size;
    if (!r->live) {
      largest = r->size > largest ? r->size : largest;
      continue;
    }
    DEMAND(k < now.count && now.live[k].address == r->address && now.live[k].size == r->requested && now.live[k].stream == r->stream);
    DEMAND(r->size >= r->requested && r->size - r->requested < 512);
    live += r->size;
    requested += r->requested;
    k++;
  }
  DEMAND(k == now.count && live == c.allocated_bytes && s.all.bytes.current == live && s.all.requested.current == requested);
  DEMAND(s.all.blocks.current == (uint64_t)now.count && c.allocations - c.frees == (uint64_t)now.count);
  DEMAND(reserved == c.reserved_bytes && s.reserved.current == reserved && reserved <= CAPACITY && reserved <= c.peak_reserved_bytes);
  DEMAND(m.live == live && m.idle + m.live + m.beside + m.pinned + m.plan == reserved && stplan_largest(now.device) <= largest);
  for (int i = 0; i < now.pinned; i++)
    DEMAND(there(count, now.pins[i].address, now.pins[i].address + now.pins[i].size));
}

static void sequence(uint64_t seed, const stplan_plan *plan) {
  memset(&now, 0, sizeof now);
  now.seed = seed;
  const sp_host_options options = {.base = UINT64_C(1) << 41, .capacity = CAPACITY, .granularity = 2 * MIB, .partial = draw(4) > 0, .known_only = draw(4) == 0};
  DEMAND(sp_host_open(&options, &now.prim));
  DEMAND(stplan_open(&now.prim, draw(2) == 0 ? plan : NULL, 0, &now.device) == STPLAN_OK);
  now.planned = plan != NULL;
  int installs = plan != NULL && draw(2) == 0 ? (int)draw(CALLS) : -1;
  for (int i = 0; i < CALLS; i++) {
    switch (draw(4)) {
    case 0: besides(); break;
    case 1: end(); break;
    default: draw(2 + (uint64_t)now.count / 16) == 0 ? request() : end(); break;
    }
    if (draw(3) == 0)
      request();
    if (i == installs)
      stplan_install(now.device, plan, 0);
    if (i % 8 == 0)
      agree();
  }
  if (now.held)
    stplan_hold(now.held = 0);
  sp_host_capture(&now.prim, UINT64_MAX);
  while (now.pinned > 0)
    DEMAND(now.pinned-- > 0 && stplan_unpin(now.device, now.pins[now.pinned].address, now.pins[now.pinned].size) == STPLAN_OK);
  while (now.count > 0)
    DEMAND(now.count-- > 0 && stplan_release(now.device, now.live[now.count].address, NULL) == STPLAN_OK);
  agree();
  stplan_counters c;
  stplan_read(now.device, &c);
  allocations += c.allocations;
  on_plan += c.planned_allocations;
  waits += c.waits;
  moved += c.moved_bytes;
  stplan_close(now.device);
}

int main(int argc, char **argv) {
  char error[256];
  stplan_plan *plan = NULL;
  DEMAND(argc > 2);
  DEMAND(argc < 4 || stplan_plan_open(argv[3], &plan, error, sizeof error) == STPLAN_OK);
  for (long i = 0; i < atol(argv[1]); i++)
    sequence((uint64_t)(atol(argv[2]) + i), plan);
  printf("%llu allocations, %llu on plan, %llu waits, %llu B moved\n", (unsigned long long)allocations,
         (unsigned long long)on_plan, (unsigned long long)waits, (unsigned long long)moved);
  DEMAND(waits > 0 && moved > 0 && (plan == NULL || on_plan > 0));
  stplan_plan_close(plan);
  return 0;
}
