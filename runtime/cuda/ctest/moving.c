/* moving.c: memory that moves, that is pinned, or that does not move, on a simulated device
 * whose calls can be made to fail or to linger. What stplan_watch tells has to be what the
 * device has given and taken back. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "../prim_host.h"
#include "../sizes.h"

#include "conformance.h"

enum { MIB = 1 << 20, GRANULE = 2 * MIB, TOLD = 1 << 16, KINDS = 4 };

#define CAPACITY (UINT64_C(1024) * MIB)
#define BASE (UINT64_C(1) << 40)

/* Granules of the simulated device that a test can reach: those of its rooms, and as many
 * behind them, for memory that does not grow. */
enum { GRANULES = 2 * SP_HOST_ADDRESSES * (CAPACITY / GRANULE) };

/* wait_a_little lets other threads go on for some milliseconds. */
static void wait_a_little(int milliseconds) {
  const struct timespec time = {.tv_nsec = milliseconds * 1000000L};
  nanosleep(&time, NULL);
}

/* A device and what is known of it. */
typedef struct {
  sp_prim host;
  stplan_device *device;
  uint8_t there[GRANULES]; /* has memory, as the device knows */
  uint8_t told[GRANULES];  /* as stplan_watch said */
  uint8_t left[GRANULES];  /* its memory is elsewhere, and still at its address */
  int carried;             /* granules that have been left */
  struct {
    stplan_event event;
    uint64_t address, size;
  } list[TOLD];
  int count, of[KINDS];
  int refuse; /* calls of give_back until one is refused; 0: none is */
  int refuse_carry, refused; /* whether calls of carry are refused; how many were that need no memory */
  atomic_int waits; /* calls of synchronize that are under way */
  atomic_int lingers; /* synchronize does not return */
} world;

static void mark(uint8_t *granules, uint64_t address, uint64_t size, uint8_t there) {
  uint64_t first = (address - BASE) / GRANULE, end = sp_round_up(address - BASE + size, GRANULE) / GRANULE;
  DEMAND(address >= BASE && end <= GRANULES);
  for (uint64_t i = first; i < end; i++) {
    DEMAND(granules[i] != there);
    granules[i] = there;
  }
}

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  world *w = self;
  int failed = w->host.extend(w->host.self, at, bytes, room, unit, addr);
  if (!failed)
    mark(w->there, *addr, bytes, 1);
  return failed;
}

static int carry(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans) {
  world *w = self;
  uint64_t old = 0;
  for (size_t i = 0; i < spans; i++)
    old += from[i].bytes;
  w->refused += w->refuse_carry && old == bytes;
  if (w->refuse_carry || w->host.carry(w->host.self, at, bytes, from, spans) != 0)
    return 1;
  for (size_t i = 0; i < spans; i++) {
    mark(w->there, from[i].addr, from[i].bytes, 0);
    mark(w->left, from[i].addr, from[i].bytes, 1);
    w->carried += (int)(from[i].bytes / GRANULE);
  }
  mark(w->there, at, bytes, 1);
  for (uint64_t g = (at - BASE) / GRANULE; g < sp_round_up(at - BASE + bytes, GRANULE) / GRANULE; g++)
    DEMAND(!w->left[g]); /* something else would be there */
  return 0;
}

static int room(void *self, uint64_t *bytes) {
  world *w = self;
  return w->host.room(w->host.self, bytes);
}

static int give_back(void *self, uint64_t addr, uint64_t bytes) {
  world *w = self;
  if (w->refuse > 0 && --w->refuse == 0)
    return 1;
  DEMAND(w->host.give_back(w->host.self, addr, bytes) == 0);
  mark(w->left[(addr - BASE) / GRANULE] ? w->left : w->there, addr, bytes, 0);
  return 0;
}

static int synchronize(void *self) {
  world *w = self;
  atomic_fetch_add(&w->waits, 1);
  while (atomic_load(&w->lingers))
    wait_a_little(1);
  atomic_fetch_sub(&w->waits, 1);
  return 0;
}

static void stop_moving(void *self) {
  world *w = self;
  w->host.stop_moving(w->host.self);
}

static int event_create(void *self, void **event) { return (void)self, (*event = malloc(1)) == NULL; }
static void event_destroy(void *self, void *event) { (void)self, free(event); }
static int event_record(void *self, void *event, uint64_t stream) { return (void)self, (void)event, (void)stream, 0; }
static int stream_wait(void *self, uint64_t stream, void *event) { return (void)self, (void)event, (void)stream, 0; }
static int event_record_whole(void *self, void *event) { return (void)self, (void)event, 0; }
static int event_done(void *self, void *event) { return (void)self, (void)event, 1; }
static uint64_t capturing(void *self, uint64_t stream) { return (void)self, (void)stream, 0; }
static void ignore(void *self) { (void)self; }

static void see(void *context, stplan_event event, uint64_t address, uint64_t size) {
  world *w = context;
  int taken = event == STPLAN_MAPPED || event == STPLAN_PIECE_TAKEN;
  DEMAND(w->count < TOLD);
  /* A piece is told before it goes, granules after. */
  if (event == STPLAN_PIECE_FREED)
    DEMAND(w->there[(address - BASE) / GRANULE]);
  if (event == STPLAN_UNMAPPED)
    DEMAND(!w->there[(address - BASE) / GRANULE]);
  mark(w->told, address, size, (uint8_t)taken);
  w->list[w->count].event = event;
  w->list[w->count].address = address;
  w->list[w->count++].size = size;
  w->of[event]++;
}

static world *fresh(void) {
  const sp_host_options options = {.base = BASE, .capacity = CAPACITY, .granularity = GRANULE, .partial = 1};
  world *w = calloc(1, sizeof *w);
  DEMAND(w != NULL && sp_host_open(&options, &w->host));
  const sp_prim prim = {
      .self = w, .granularity = GRANULE, .partial = 1, .span = w->host.span, .extend = extend, .carry = carry, .give_back = give_back,
      .stop_moving = stop_moving, .synchronize = synchronize, .event_create = event_create,
      .event_destroy = event_destroy, .event_record = event_record, .stream_wait = stream_wait,
      .event_record_whole = event_record_whole, .event_done = event_done,
      .capturing = capturing, .room = room, .close = ignore};
  DEMAND(stplan_open(&prim, NULL, 0, &w->device) == STPLAN_OK);
  stplan_watch(w->device, see, w);
  return w;
}

/* drop closes the device. What was told is what there is, up to the end. */
static void drop(world *w) {
  DEMAND(memcmp(w->there, w->told, sizeof w->there) == 0);
  stplan_close(w->device);
  for (int i = 0; i < GRANULES; i++)
    DEMAND(!w->there[i] && !w->left[i]);
  sp_host_drop(&w->host);
  free(w);
}

static uint64_t get(const world *w, uint64_t size) {
  uint64_t p = stplan_malloc(w->device, size, 1, NULL, NULL);
  DEMAND(p != 0);
  return p;
}

static void put(const world *w, uint64_t p) { DEMAND(stplan_release(w->device, p, NULL) == STPLAN_OK); }

static stplan_counters counters(const world *w) {
  stplan_counters c;
  stplan_read(w->device, &c);
  return c;
}

enum { PIECES = 8, PIECE = 8 * MIB };

/* idle_pieces leaves every other of 16 blocks free. */
static void idle_pieces(const world *w, uint64_t p[2 * PIECES]) {
  for (int i = 0; i < 2 * PIECES; i++)
    p[i] = get(w, PIECE);
  for (int i = 0; i < 2 * PIECES; i += 2)
    put(w, p[i]);
}

/* pieces_are_segments demands that what stplan_ranges lists as pieces are those that were
 * told as taken and not as freed since. */
static void pieces_are_segments(const world *w) {
  static stplan_range ranges[TOLD];
  size_t count = stplan_ranges(w->device, ranges, TOLD);
  DEMAND(count <= TOLD);
  int live = 0, found = 0;
  for (int i = 0; i < w->count; i++)
    live += (w->list[i].event == STPLAN_PIECE_TAKEN) - (w->list[i].event == STPLAN_PIECE_FREED);
  for (size_t i = 0; i < count; i++) {
    if (!ranges[i].first)
      continue;
    uint64_t size = 0;
    for (size_t k = i; k < count && (k == i || !ranges[k].first); k++)
      size += ranges[k].size;
    int told = 0;
    for (int k = 0; k < w->count; k++)
      if (w->list[k].address == ranges[i].address && w->list[k].size == size)
        told += (w->list[k].event == STPLAN_PIECE_TAKEN) - (w->list[k].event == STPLAN_PIECE_FREED);
    DEMAND(told == 1);
    found++;
  }
  DEMAND(found == live);
}

/* Nothing moves: memory comes in pieces of 20 MiB or more, and goes in the same pieces. */
static void memory_may_stay(void) {
  world *w = fresh();
  uint64_t p[2 * PIECES];
  stplan_stop_moving(w->device);
  DEMAND(!stplan_moves(w->device));
  idle_pieces(w, p);
  uint64_t all = get(w, PIECES * PIECE), small = get(w, 512);
  DEMAND(counters(w).moved_bytes == 0 && w->of[STPLAN_PIECE_FREED] == 0);
  pieces_are_segments(w);
  for (int i = 0; i < w->count; i++)
    DEMAND(w->list[i].event == STPLAN_PIECE_TAKEN && w->list[i].size >= SP_HANDLE_LEAST);
  put(w, all);
  for (int i = 1; i < 2 * PIECES; i += 2)
    put(w, p[i]);
  stplan_empty_cache(w->device);
  pieces_are_segments(w);
  DEMAND(counters(w).reserved_bytes == SP_HANDLE_LEAST); /* the small block's */
  put(w, small);
  drop(w);
}

/* A piece is taken smaller if the limit leaves no more. */
static void limits_leave_smaller_pieces(void) {
  world *w = fresh();
  stplan_stop_moving(w->device);
  stplan_set_limit(w->device, 8 * MIB);
  uint64_t p = get(w, 6 * MIB);
  DEMAND(counters(w).reserved_bytes == 6 * MIB);
  put(w, p);
  /* Idle pieces go before a request fails. */
  put(w, get(w, 8 * MIB));
  DEMAND(w->of[STPLAN_PIECE_FREED] == 1 && counters(w).failed_allocations == 0);
  drop(w);
}

/* From the moment that moving is off no address gets memory that it did not have then, and
 * none that had it loses it, except in whole pieces. */
static void moving_may_end(void) {
  world *w = fresh();
  uint64_t p[2 * PIECES];
  idle_pieces(w, p);
  put(w, get(w, PIECES * PIECE));
  DEMAND(counters(w).moved_bytes > 0);
  uint8_t known[GRANULES];
  memcpy(known, w->told, sizeof known);
  int count = w->count;
  stplan_stop_moving(w->device);
  stplan_stop_moving(w->device);
  DEMAND(w->count == count && !stplan_moves(w->device));
  uint64_t large = get(w, 200 * MIB), q[PIECES];
  for (int i = 0; i < PIECES; i++)
    q[i] = get(w, PIECE);
  for (int i = count; i < w->count; i++)
    DEMAND(w->list[i].event == STPLAN_PIECE_TAKEN);
  for (int i = 0; i < GRANULES; i++)
    DEMAND(!known[i] || w->told[i]);
  for (int i = 0; i < GRANULES / 2; i++) /* where memory could move, below the new pieces */
    DEMAND(known[i] || !w->told[i]);
  put(w, large);
  stplan_empty_cache(w->device);
  for (int i = 0; i < PIECES; i++)
    put(w, q[i]);
  drop(w);
}

/* left counts the granules whose memory is elsewhere and still at its address. */
static int left(const world *w) {
  int count = 0;
  for (int i = 0; i < GRANULES; i++)
    count += w->left[i];
  return count;
}

/* Memory that moves is carried: no more is reserved, and it stays where it was until there is need
 * for the addresses or for memory to go to the device. If the device refuses that, it is given
 * back and taken again. */
static void what_moves_is_carried(void) {
  for (int refused = 0; refused < 2; refused++) {
    world *w = fresh();
    uint64_t p[2 * PIECES], all = 2 * PIECES * PIECE;
    idle_pieces(w, p);
    w->refuse_carry = refused;
    uint64_t q = get(w, all / 2);
    stplan_counters c = counters(w);
    DEMAND(memcmp(w->there, w->told, sizeof w->there) == 0);
    if (refused) {
      DEMAND(w->carried == 0 && left(w) == 0 && c.moved_bytes == all / 2 && c.reserved_bytes == all);
      w->refuse_carry = 0;
    } else {
      DEMAND(c.reserved_bytes == all && c.moved_bytes == all / 2);
      DEMAND(w->carried > 0 && left(w) == w->carried);
      /* Its addresses get memory again, carried from where that is now: they are cleared first. */
      int carried = w->carried;
      put(w, q);
      for (int i = 0; i < 2 * PIECES; i += 2)
        p[i] = get(w, PIECE);
      DEMAND(counters(w).reserved_bytes <= all + 4 * MIB && w->carried >= carried);
      for (int i = 0; i < 2 * PIECES; i += 2)
        put(w, p[i]);
      q = get(w, all / 2);
      DEMAND(left(w) > 0);
    }
    /* Memory goes to the device as a whole: from all its addresses. */
    put(w, q);
    DEMAND(stplan_empty_cache(w->device) > 0 && left(w) == 0);
    for (int i = 1; i < 2 * PIECES; i += 2)
      put(w, p[i]);
    drop(w);
  }
}

/* The limit holds if more is idle than one call carries, and if the device does not carry at all. */
static void carrying_keeps_the_limit(void) {
  enum { BLOCKS = 300, BLOCK = GRANULE, ALL = BLOCKS * BLOCK };
  static uint64_t p[BLOCKS];
  for (int refused = 0; refused < 2; refused++) {
    world *w = fresh();
    for (int i = 0; i < BLOCKS; i++)
      p[i] = get(w, BLOCK);
    for (int i = 0; i < BLOCKS; i += 2)
      put(w, p[i]);
    DEMAND(counters(w).reserved_bytes == ALL);
    stplan_set_limit(w->device, ALL);
    w->refuse_carry = refused;
    uint64_t q = get(w, ALL / 2 - 2 * MIB);
    DEMAND(counters(w).peak_reserved_bytes == ALL && (w->carried > 0) == !refused);
    put(w, q);
    for (int i = 1; i < BLOCKS; i += 2)
      put(w, p[i]);
    drop(w);
  }
}

/* While nothing may be given back, addresses that memory has left cannot be used: what is asked for goes
 * elsewhere, and no room is begun for it. */
static void what_is_left_can_be_in_the_way(void) {
  world *w = fresh();
  uint64_t p[2 * PIECES], low = UINT64_MAX, q = 0;
  idle_pieces(w, p);
  put(w, get(w, PIECES * PIECE));
  int before = left(w);
  DEMAND(before > 0);
  for (int i = 0; i < 2 * PIECES; i++)
    low = p[i] < low ? p[i] : low;
  stplan_hold(1);
  for (int i = 0; i < 4; i++) {
    q = get(w, (PIECES + 1) * PIECE);
    DEMAND(q > low && q < low + SP_HOST_ROOM * CAPACITY && left(w) == before);
  }
  stplan_hold(0);
  put(w, q);
  stplan_empty_cache(w->device);
  DEMAND(left(w) == 0);
  drop(w);
}

/* A device that never carries is not asked for ever, and memory moves all the same. */
static void carrying_is_given_up(void) {
  enum { BLOCKS = 12, STEPS = 400, MOST = 40 };
  uint64_t p[BLOCKS] = {0}, seed = 1;
  world *w = fresh();
  w->refuse_carry = 1;
  stplan_set_limit(w->device, CAPACITY / 4);
  for (int step = 0; step < STEPS; step++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    int i = (int)(seed >> 33) % BLOCKS;
    if (p[i] != 0)
      put(w, p[i]);
    uint64_t size = (1 + (seed >> 40) % MOST) * MIB;
    p[i] = counters(w).allocated_bytes + size <= CAPACITY / 5 ? get(w, size) : 0;
  }
  DEMAND(w->refused == 3 && counters(w).moved_bytes > CAPACITY / 4);
  drop(w);
}

/* Addresses that were left are given back before memory does not move any more, and in the end. */
static void what_is_left_goes(void) {
  for (int stops = 0; stops < 2; stops++) {
    world *w = fresh();
    uint64_t p[2 * PIECES];
    idle_pieces(w, p);
    get(w, PIECES * PIECE);
    DEMAND(left(w) > 0);
    if (stops)
      stplan_stop_moving(w->device);
    DEMAND((left(w) == 0) == stops);
    drop(w);
  }
}

/* Pinned granules keep their memory, and what is beside them does not. */
static void pins_survive_frees(void) {
  world *w = fresh();
  uint64_t p = get(w, 64 * MIB), end = get(w, 2 * MIB);
  DEMAND(stplan_pin(w->device, p + 20 * MIB, 4 * MIB) == STPLAN_OK);
  DEMAND(stplan_pin(w->device, p + 20 * MIB, 4 * MIB) == STPLAN_OK);
  DEMAND(stplan_pin(w->device, p + 41 * MIB, 512) == STPLAN_OK);
  DEMAND(stplan_pin(w->device, p + 64 * MIB - 512, 1024) == STPLAN_BAD_POINTER);
  DEMAND(stplan_pin(w->device, p, 0) == STPLAN_BAD_POINTER);
  DEMAND(stplan_pin(w->device, p, UINT64_MAX) == STPLAN_BAD_POINTER);
  DEMAND(stplan_pin(w->device, 12345, 1) == STPLAN_BAD_POINTER);
  DEMAND(stplan_unpin(w->device, p + 20 * MIB, 2 * MIB) == STPLAN_BAD_POINTER);
  put(w, p);
  DEMAND(stplan_pin(w->device, p, 512) == STPLAN_BAD_POINTER); /* no live block */
  DEMAND(stplan_empty_cache(w->device) == 58 * MIB);
  for (int i = 0; i < 3; i++)
    DEMAND(w->there[(p - BASE) / GRANULE + (uint64_t)(i < 2 ? 10 + i : 20)]);
  DEMAND(stplan_unpin(w->device, p + 20 * MIB, 4 * MIB) == STPLAN_OK && stplan_empty_cache(w->device) == 0);
  DEMAND(stplan_unpin(w->device, p + 20 * MIB, 4 * MIB) == STPLAN_OK && stplan_empty_cache(w->device) == 4 * MIB);
  DEMAND(stplan_unpin(w->device, p + 20 * MIB, 4 * MIB) == STPLAN_BAD_POINTER);
  /* Memory does not move from what is pinned either, and it serves others. */
  uint64_t q[2 * PIECES];
  idle_pieces(w, q);
  DEMAND(w->there[(p - BASE) / GRANULE + 20]);
  put(w, get(w, 2 * PIECES * PIECE));
  DEMAND(w->there[(p - BASE) / GRANULE + 20]);
  put(w, end);
  drop(w);
}

/* Pins of the same size are told apart by their addresses, what is not live cannot be pinned,
 * and only what is free counts as pinned memory. */
static void pins_are_told_apart(void) {
  world *w = fresh();
  stplan_memory memory;
  uint64_t p = get(w, 64 * MIB), small = get(w, 512);
  DEMAND(stplan_pin(w->device, p, 64 * MIB) == STPLAN_OK && stplan_unpin(w->device, p, 64 * MIB) == STPLAN_OK);
  DEMAND(stplan_pin(w->device, small + MIB, 512) == STPLAN_BAD_POINTER); /* it never was live */
  DEMAND(stplan_pin(w->device, p + 10 * MIB, 512) == STPLAN_OK && stplan_pin(w->device, p + 30 * MIB, 512) == STPLAN_OK);
  put(w, p);
  stplan_survey(w->device, &memory);
  DEMAND(memory.pinned == 2 * GRANULE);
  DEMAND(stplan_unpin(w->device, p + 10 * MIB, 512) == STPLAN_OK && stplan_empty_cache(w->device) == 62 * MIB);
  DEMAND(w->there[(p + 30 * MIB - BASE) / GRANULE] && !w->there[(p + 10 * MIB - BASE) / GRANULE]);
  DEMAND(stplan_unpin(w->device, p + 30 * MIB, 512) == STPLAN_OK && stplan_empty_cache(w->device) == 2 * MIB);
  /* Two blocks lie in what was pinned for one. */
  p = get(w, 64 * MIB);
  DEMAND(stplan_pin(w->device, p + 16 * MIB, 32 * MIB) == STPLAN_OK);
  put(w, p);
  uint64_t a = get(w, 20 * MIB), b = get(w, 44 * MIB);
  DEMAND((a == p && b == p + 20 * MIB) || (b == p && a == p + 44 * MIB));
  put(w, p);
  stplan_survey(w->device, &memory);
  DEMAND(memory.pinned == (a == p ? 4 : 28) * MIB);
  put(w, a == p ? b : a);
  put(w, small);
  DEMAND(stplan_unpin(w->device, p + 16 * MIB, 32 * MIB) == STPLAN_OK);
  drop(w);
}

static void whole_pieces_are_pinned(void) {
  world *w = fresh();
  stplan_stop_moving(w->device);
  uint64_t p = get(w, 64 * MIB), q = get(w, 32 * MIB);
  DEMAND(stplan_pin(w->device, p + MIB, 512) == STPLAN_OK);
  put(w, p);
  put(w, q);
  DEMAND(stplan_empty_cache(w->device) == 32 * MIB);
  DEMAND(stplan_unpin(w->device, p + MIB, 512) == STPLAN_OK && stplan_empty_cache(w->device) == 64 * MIB);
  drop(w);
}

/* What the device does not take back is not told as gone, and serves again. */
static void refused_memory_stays_ours(void) {
  world *w = fresh();
  uint64_t p = get(w, 32 * MIB);
  put(w, p);
  w->refuse = 5;
  uint64_t given, taken;
  DEMAND(stplan_pause(w->device, &given) == STPLAN_FAILED && given == 4 * GRANULE);
  DEMAND(counters(w).reserved_bytes == 32 * MIB - 4 * GRANULE && memcmp(w->there, w->told, sizeof w->there) == 0);
  DEMAND(get(w, 24 * MIB) == p + 4 * GRANULE);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &taken) == STPLAN_OK && taken == given && w->there[(p - BASE) / GRANULE]);
  put(w, p + 4 * GRANULE);
  w->refuse = 5;
  DEMAND(stplan_pause(w->device, &given) == STPLAN_FAILED && given == 4 * GRANULE);
  w->refuse = 1;
  DEMAND(stplan_empty_cache(w->device) == 0 && w->of[STPLAN_UNMAPPED] == 2);
  DEMAND(stplan_empty_cache(w->device) == 24 * MIB && counters(w).reserved_bytes == 0);
  stplan_stop_moving(w->device);
  put(w, get(w, 32 * MIB));
  w->refuse = 1;
  DEMAND(stplan_empty_cache(w->device) == 0);
  DEMAND(w->list[w->count - 2].event == STPLAN_PIECE_FREED && w->list[w->count - 1].event == STPLAN_PIECE_TAKEN);
  pieces_are_segments(w); /* the first extent is gone, as a whole */
  drop(w);
}

/* A pause that leaves nothing is undone at other addresses, and what a request has taken
 * meanwhile counts. Memory that does not move is left to requests. */
static void pauses_are_undone(void) {
  world *w = fresh();
  uint64_t bytes;
  stplan_memory where;
  put(w, get(w, 100 * MIB));
  put(w, get(w, 100 * 1024)); /* which has a zone of its own */
  DEMAND(stplan_pause(w->device, &bytes) == STPLAN_OK && bytes == 102 * MIB && counters(w).reserved_bytes == 0);
  stplan_survey(w->device, &where);
  DEMAND(where.given == 102 * MIB && where.idle == 0 && where.live == 0);
  uint64_t p = get(w, 10 * MIB);
  DEMAND(counters(w).reserved_bytes == 10 * MIB);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &bytes) == STPLAN_OK && bytes == 92 * MIB);
  uint64_t growths = counters(w).growths;
  put(w, get(w, 80 * MIB));
  DEMAND(counters(w).growths == growths && counters(w).reserved_bytes == 102 * MIB);
  put(w, p);
  stplan_stop_moving(w->device);
  DEMAND(stplan_pause(w->device, &bytes) == STPLAN_OK && bytes == 102 * MIB);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &bytes) == STPLAN_OK && bytes == 0);
  drop(w);
}

/* The limit refuses what is taken back as the device does. */
static void limits_hold_resumes(void) {
  world *w = fresh();
  uint64_t bytes, small = get(w, 4 * MIB);
  put(w, get(w, 300 * MIB));
  DEMAND(stplan_pause(w->device, &bytes) == STPLAN_OK && bytes >= 298 * MIB);
  stplan_set_limit(w->device, 150 * MIB);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &bytes) == STPLAN_NO_MEMORY && bytes <= 146 * MIB && bytes > 64 * MIB);
  put(w, get(w, 140 * MIB));
  stplan_set_limit(w->device, 0);
  DEMAND(stplan_resume(w->device, UINT64_MAX, &bytes) == STPLAN_OK && counters(w).reserved_bytes == counters(w).peak_reserved_bytes);
  put(w, small);
  drop(w);
}

static void *empty(void *of) {
  const world *w = of;
  return (void *)(uintptr_t)stplan_empty_cache(w->device);
}

static atomic_int holding;

static void *hold(void *ignored) {
  stplan_hold(1);
  atomic_store(&holding, 1);
  return ignored;
}

/* A hold is of all devices, and waits for what is being given back on any of them. */
static void holds_are_of_the_process(void) {
  world *a = fresh(), *b = fresh();
  pthread_t giver, holder;
  void *given;
  put(a, get(a, 8 * MIB));
  put(b, get(b, 8 * MIB));
  atomic_store(&b->lingers, 1);
  DEMAND(pthread_create(&giver, NULL, empty, b) == 0);
  while (atomic_load(&b->waits) == 0)
    wait_a_little(1);
  DEMAND(pthread_create(&holder, NULL, hold, NULL) == 0);
  wait_a_little(20);
  DEMAND(!atomic_load(&holding));
  atomic_store(&b->lingers, 0);
  pthread_join(giver, &given);
  pthread_join(holder, NULL);
  DEMAND((uintptr_t)given == 8 * MIB);
  put(b, get(b, 8 * MIB));
  uint64_t bytes;
  DEMAND(stplan_pause(a->device, &bytes) == STPLAN_HELD && bytes == 0 && stplan_empty_cache(b->device) == 0);
  DEMAND(stplan_resume(b->device, 4 * MIB, &bytes) == STPLAN_OK && bytes == 0); /* 8 are back by request */
  stplan_hold(0);
  DEMAND(stplan_empty_cache(a->device) == 8 * MIB && stplan_empty_cache(b->device) == 8 * MIB);
  /* One object may keep its memory for ever. */
  put(a, get(a, 8 * MIB));
  stplan_keep(a->device);
  DEMAND(stplan_empty_cache(a->device) == 0);
  drop(a);
  drop(b);
}

enum { THREADS = 4, OPERATIONS = 3000, LIVE = 12 };

typedef struct {
  world *of;
  uint64_t seed;
  int first;
} worker;

static uint64_t draw(worker *w, uint64_t below) {
  w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (w->seed >> 33) % below;
}

/* work allocates, frees, pins and trims; halfway the first thread ends moving. */
static void *work(void *self) {
  worker *w = self;
  stplan_device *d = w->of->device;
  uint64_t live[LIVE], pinned = 0, size = 0;
  int count = 0;
  for (int i = 0; i < OPERATIONS; i++) {
    if (i == OPERATIONS / 2 && w->first)
      stplan_stop_moving(d);
    if (draw(w, 200) == 0)
      stplan_empty_cache(d);
    if (draw(w, 100) == 0)
      stplan_resume(d, draw(w, 100 * MIB), &(uint64_t){0});
    if (pinned != 0 && draw(w, 20) == 0) {
      DEMAND(stplan_unpin(d, pinned, size) == STPLAN_OK);
      pinned = 0;
    }
    if (count == LIVE || (count > 0 && draw(w, 2) == 0)) {
      int k = (int)draw(w, (uint64_t)count);
      stplan_range r;
      DEMAND(stplan_find(d, live[k], &r) == STPLAN_OK);
      if (pinned == 0) {
        pinned = live[k];
        size = 1 + draw(w, r.size);
        DEMAND(stplan_pin(d, pinned, size) == STPLAN_OK);
      }
      put(w->of, live[k]);
      live[k] = live[--count];
    } else {
      live[count] = stplan_malloc(d, draw(w, 30) == 0 ? 24 * MIB : 512 + draw(w, 3 * MIB), draw(w, 3), NULL, NULL);
      count += live[count] != 0;
    }
  }
  while (count > 0)
    put(w->of, live[--count]);
  if (pinned != 0)
    DEMAND(stplan_unpin(d, pinned, size) == STPLAN_OK);
  return NULL;
}

/* Moving may end while other threads allocate; nothing is told that is not so. */
static void threads_go_on(void) {
  for (uint64_t round = 0; round < 3; round++) {
    world *w = fresh();
    pthread_t threads[THREADS];
    worker workers[THREADS];
    stplan_set_limit(w->device, 200 * MIB);
    for (uint64_t i = 0; i < THREADS; i++) {
      workers[i] = (worker){w, round * THREADS + i + 1, i == 0};
      DEMAND(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
    DEMAND(counters(w).allocated_bytes == 0);
    DEMAND(!stplan_moves(w->device));
    DEMAND(w->of[STPLAN_MAPPED] > 0);
    stplan_empty_cache(w->device);
    DEMAND(counters(w).reserved_bytes == 0);
    /* The threads may not have needed a piece after moving ended; this block does. */
    int taken = w->of[STPLAN_PIECE_TAKEN];
    put(w, get(w, 24 * MIB));
    DEMAND(w->of[STPLAN_PIECE_TAKEN] == taken + 1);
    drop(w);
  }
}

/* Handles of a piece have one size of 512 MiB at most, and exceed it by next to nothing. */
static void handles_fit(void) {
  for (uint64_t whole = GRANULE; whole <= UINT64_C(40) << 30; whole += GRANULE) {
    uint64_t size = sp_handle_size(whole - 1, SP_HANDLE_MOST, GRANULE);
    DEMAND(size % GRANULE == 0 && size <= SP_HANDLE_MOST && (whole <= SP_HANDLE_MOST ? size == whole : size > SP_HANDLE_MOST / 2));
    DEMAND(sp_round_up(whole, size) - whole <= whole / 256);
  }
}

int main(void) {
  memory_may_stay();
  limits_leave_smaller_pieces();
  moving_may_end();
  what_moves_is_carried();
  what_is_left_goes();
  carrying_keeps_the_limit();
  carrying_is_given_up();
  what_is_left_can_be_in_the_way();
  pins_survive_frees();
  pins_are_told_apart();
  whole_pieces_are_pinned();
  refused_memory_stays_ours();
  pauses_are_undone();
  limits_hold_resumes();
  holds_are_of_the_process();
  threads_go_on();
  handles_fit();
  return 0;
}
