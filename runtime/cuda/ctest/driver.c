/* driver.c: the CUDA primitives on a strict, simulated driver (fake_driver.c,
 * which has to be found as libcuda.so.1): the conformance suite, and a program
 * that runs again and again, each time with another call of the driver failing.
 * No request may be given memory that does not exist, or that another block has.
 *
 *   driver EVERY: of the program's calls, every EVERY-th fails in a run of its own */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "../prim_cuda.h"
#include "../sizes.h"

#include "conformance.h"
#include "fake_driver.h"

#define LIMIT (UINT64_C(128) << 20)

enum { MIB = 1 << 20, LIVE = 24, STEPS = 160, STREAMS = 3, MAY_FAIL = 2, LOST_CALLS = 10000 };

static struct {
  fake_fail_function *fail;
  fake_calls_function *calls;
  fake_backed_function *backed;
  fake_reset_function *reset;
  fake_left_function *left;
  fake_stream_function *stream;
  fake_fabric_function *fabric;
  fake_handles_function *handles;
} fake;

static sp_cuda_memory memory;
static int still; /* memory does not move in the program */

static void find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  DEMAND(library != NULL);
  *(void **)&fake.fail = dlsym(library, "fake_fail");
  *(void **)&fake.calls = dlsym(library, "fake_calls");
  *(void **)&fake.backed = dlsym(library, "fake_backed");
  *(void **)&fake.reset = dlsym(library, "fake_reset");
  *(void **)&fake.left = dlsym(library, "fake_left");
  *(void **)&fake.stream = dlsym(library, "fake_stream");
  *(void **)&fake.fabric = dlsym(library, "fake_fabric");
  *(void **)&fake.handles = dlsym(library, "fake_handles");
  DEMAND(fake.fabric != NULL && fake.handles != NULL && fake.fail != NULL && fake.calls != NULL && fake.backed != NULL && fake.reset != NULL && fake.left != NULL && fake.stream != NULL);
}

static sp_prim open_cuda(uint64_t capacity) {
  sp_prim prim;
  char error[128];
  (void)capacity;
  DEMAND(sp_cuda_open(0, memory, &prim, error, sizeof error));
  return prim;
}

static int nothing_is_left(void) {
  static const fake_rest none;
  fake_rest left = fake.left();
  return memcmp(&left, &none, sizeof left) == 0;
}

static struct {
  uint64_t address, size;
} live[LIVE];
static int count;

static uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (*seed >> 33) % below;
}

/* get asks for a block, and says whether it got one. */
static int get(stplan_device *d, uint64_t size, uint64_t stream) {
  uint64_t p = stplan_malloc(d, size, stream, NULL, NULL);
  if (p == 0)
    return 0;
  DEMAND(fake.backed(0, p, size));
  for (int i = 0; i < count; i++)
    DEMAND(live[i].address + live[i].size <= p || p + size <= live[i].address);
  live[count].address = p;
  live[count++].size = size;
  return 1;
}

/* pause_or_resume gives idle memory away, or takes some back. Whatever the driver refuses, what is
 * reserved is somewhere, and a block's memory stays. */
static void pause_or_resume(stplan_device *d, int pause, uint64_t bytes) {
  stplan_counters before, after;
  stplan_memory where;
  uint64_t moved;
  stplan_read(d, &before);
  stplan_status status = pause ? stplan_pause(d, &moved) : stplan_resume(d, bytes, &moved);
  stplan_read(d, &after);
  stplan_survey(d, &where);
  DEMAND(after.reserved_bytes == (pause ? before.reserved_bytes - moved : before.reserved_bytes + moved));
  DEMAND(where.idle + where.live + where.beside + where.pinned + where.plan == after.reserved_bytes);
  DEMAND(status == STPLAN_OK || status == (pause ? STPLAN_FAILED : STPLAN_NO_MEMORY));
  DEMAND(!pause || (where.idle > 0) == (status != STPLAN_OK));
  for (int i = 0; i < count; i++)
    DEMAND(fake.backed(0, live[i].address, live[i].size));
}

/* program allocates, frees, moves, pauses and resumes on several streams, and returns how
 * many requests failed. In the end everything is freed and closed. */
static int program(const uint64_t streams[STREAMS]) {
  sp_prim prim;
  char error[128];
  stplan_device *d;
  uint64_t seed = 1;
  int failed = 0;
  if (!sp_cuda_open(0, memory, &prim, error, sizeof error))
    return 1;
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  stplan_set_limit(d, still ? 2 * LIMIT : LIMIT); /* what does not move fits less well */
  if (still)
    stplan_stop_moving(d);
  for (int step = 0; step < STEPS; step++) {
    uint64_t stream = streams[draw(&seed, STREAMS)], kind = draw(&seed, 100);
    if (step % 8 == 7)
      pause_or_resume(d, 0, (uint64_t)step * MIB);
    if (kind < 4) {
      pause_or_resume(d, 1, 0);
    } else if (kind < 7) {
      failed += stplan_allow_peer(d, 1) != STPLAN_OK;
    } else if (count == LIVE || (count > 0 && kind < 55)) {
      int k = (int)draw(&seed, (uint64_t)count);
      if (kind % 3 == 0)
        stplan_record_stream(d, live[k].address, streams[draw(&seed, STREAMS)]);
      DEMAND(stplan_release(d, live[k].address, NULL) == STPLAN_OK);
      live[k] = live[--count];
    } else {
      failed += !get(d, kind < 60 ? 21 * MIB : 512 + draw(&seed, 3 * MIB), stream);
    }
  }
  for (; count > 0; count--)
    DEMAND(fake.backed(0, live[count - 1].address, live[count - 1].size) && stplan_release(d, live[count - 1].address, NULL) == STPLAN_OK);
  stplan_close(d);
  return failed;
}

/* keeps says whether a call, if it fails, leaves something with the driver that
 * the driver was to take back. */
static int keeps(const char *name) {
  static const char *const keeping[] = {"cuMemUnmap", "cuMemFree_v2", "cuMemAddressFree", "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode", "cuCtxSynchronize"};
  for (size_t i = 0; i < sizeof keeping / sizeof *keeping; i++)
    if (strcmp(name, keeping[i]) == 0)
      return 1;
  return 0;
}

/* any_call_may_fail has every `every`-th call fail, each in a run of the
 * program. At most two more requests fail: the one that the call was made for,
 * and the one that repeats it. */
static void any_call_may_fail(long every) {
  const uint64_t streams[STREAMS] = {0, fake.stream(0), fake.stream(0)};
  const char *name;
  fake.fail(0, 0);
  int fewest = program(streams); /* the limit refuses some */
  DEMAND(nothing_is_left());
  long calls = fake.calls(&name);
  for (long n = 1; n <= calls; n += every) {
    fake.fail(n, 0);
    int failed = program(streams);
    fake.calls(&name);
    DEMAND(name != NULL && failed <= fewest + MAY_FAIL);
    DEMAND(keeps(name) || nothing_is_left());
    fake.reset();
  }
  printf("%ld calls of the driver, of which one in %ld failed\n", calls, every);
}

/* lost_from runs what uses the driver with every call from the n-th on failing, as they do once a kernel has failed an
 * assertion. It may get fewer blocks, but nothing is waited for that will never be done: a wait on the host looks
 * 50,000 times a second. It returns how many calls there were. */
static long lost_from(long n, int (*use)(const uint64_t streams[STREAMS]), const uint64_t streams[STREAMS]) {
  const char *name;
  fake.fail(n, 1);
  use(streams);
  long calls = fake.calls(&name);
  DEMAND(n == 0 || calls <= n + LOST_CALLS);
  fake.fail(0, 0);
  fake.reset();
  return calls;
}

/* move has memory move that another stream has used, which the host waits for. */
static int move(const uint64_t streams[STREAMS]) {
  stplan_device *d;
  char error[128];
  sp_prim prim;
  int failed = 0;
  if (!sp_cuda_open(0, memory, &prim, error, sizeof error))
    return 1;
  prim.carry = NULL;
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  stplan_set_limit(d, LIMIT);
  failed += !get(d, 60 * MIB, streams[1]);
  failed += !get(d, 60 * MIB, streams[1]);
  if (failed == 0)
    DEMAND(stplan_release(d, live[0].address, NULL) == STPLAN_OK);
  if (failed == 0)
    live[0] = live[--count];
  failed += !get(d, 66 * MIB, streams[2]);
  for (; count > 0; count--)
    DEMAND(stplan_release(d, live[count - 1].address, NULL) == STPLAN_OK);
  stplan_close(d);
  return failed;
}

static void the_device_may_be_lost(long every) {
  const uint64_t streams[STREAMS] = {0, fake.stream(0), fake.stream(0)};
  fake.fail(0, 0);
  DEMAND(move(streams) == 0);
  long calls = lost_from(0, program, streams), moving = lost_from(0, move, streams);
  for (long n = 1; n <= calls; n += every)
    lost_from(n, program, streams);
  for (long n = 1; n <= moving; n++)
    lost_from(n, move, streams);
}

/* A stream of another device is refused: memory that it had used could never be used again. */
static void streams_are_of_the_device(void) {
  const uint64_t ours = fake.stream(0), theirs = fake.stream(1);
  stplan_device *d;
  stplan_status status;
  sp_prim prim = open_cuda(0);
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  uint64_t p = stplan_malloc(d, 4 * MIB, ours, NULL, &status);
  DEMAND(p != 0 && stplan_malloc(d, 512, theirs, NULL, &status) == 0 && status == STPLAN_BAD_STREAM);
  DEMAND(stplan_record_stream(d, p, theirs) == STPLAN_BAD_STREAM);
  DEMAND(stplan_release(d, p, NULL) == STPLAN_OK && stplan_malloc(d, 4 * MIB, ours, NULL, NULL) == p);
  stplan_close(d);
}

/* Memory that does not move has a handle for each piece, or several of one size. Each can be
 * exported as a file. */
static void large_handles(void) {
  stplan_device *d;
  sp_prim prim = open_cuda(0);
  int exportable;
  uint64_t base, size, first;
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  uint64_t p = stplan_malloc(d, 40 * MIB, 0, NULL, NULL);
  fake.handles(&exportable);
  DEMAND(stplan_granule(d, p + 3 * MIB, &base, &size) == STPLAN_OK && base == p + 2 * MIB && size == 2 * MIB);
  stplan_stop_moving(d);
  uint64_t small = stplan_malloc(d, 3 * MIB, 0, NULL, NULL), large = stplan_malloc(d, 700 * MIB, 0, NULL, NULL);
  DEMAND(fake.handles(&exportable) == 3 && exportable == 1);
  DEMAND(stplan_granule(d, small + MIB, &base, &size) == STPLAN_OK && base == small && size == 20 * MIB);
  DEMAND(stplan_granule(d, large, &first, &size) == STPLAN_OK && first == large && size == 350 * MIB);
  DEMAND(stplan_granule(d, large + 699 * MIB, &base, &size) == STPLAN_OK && base == first + size && size == 350 * MIB);
  for (uint64_t at = first; at <= base; at += size) {
    int file = -1;
    DEMAND(stplan_export_granule(d, at, &file) == STPLAN_OK && file >= 0 && close(file) == 0);
  }
  DEMAND(fake.backed(0, large, 700 * MIB) && stplan_allow_peer(d, 1) == STPLAN_OK && fake.backed(1, large, 700 * MIB) && fake.backed(1, p, 40 * MIB));
  DEMAND(stplan_release(d, large, NULL) == STPLAN_OK && stplan_empty_cache(d) == 700 * MIB);
  DEMAND(stplan_malloc(d, 700 * MIB, 0, NULL, NULL) != 0);
  stplan_close(d);
  DEMAND(nothing_is_left());
}

/* in_a_room takes and gives granules of 6 MiB of a room of 8, and
 * says how many calls failed. What the calls have answered is mapped; what has failed may
 * stay with the driver. */
static int in_a_room(const sp_prim *prim) {
  enum { UNIT = 6 * MIB, ALL = 8 * UNIT };
  static const struct {
    int take;
    uint64_t at, bytes;
  } calls[] = {{1, 7 * UNIT, UNIT}, {1, UNIT, 2 * UNIT}, {0, 2 * UNIT, UNIT}, {1, 2 * UNIT, 5 * UNIT}, {0, 3 * UNIT, 5 * UNIT}};
  uint64_t start, base, size;
  uint8_t there[ALL / MIB] = {0};
  int failed = prim->extend(prim->self, 0, UNIT, ALL, UNIT, &start) != 0;
  if (failed)
    return failed;
  DEMAND(start % UNIT == 0 && prim->extend(prim->self, start + ALL, UNIT, 0, 0, &base) != 0);
  memset(there, 1, UNIT / MIB);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    uint64_t at = calls[i].at, end = at + calls[i].bytes, got;
    if (i == 2 && prim->allow_peer(prim->self, 1) != 0)
      failed++;
    int refused = calls[i].take ? memchr(there + at / MIB, 1, (end - at) / MIB) != NULL : memchr(there + at / MIB, 0, (end - at) / MIB) != NULL;
    if (refused) /* as a call before has failed */
      continue;
    if (calls[i].take ? prim->extend(prim->self, start + at, calls[i].bytes, 0, 0, &got) != 0 : prim->give_back(prim->self, start + at, calls[i].bytes) != 0)
      failed++;
    else
      memset(there + at / MIB, calls[i].take, (end - at) / MIB);
    const char *name;
    fake.calls(&name);
    for (uint64_t b = 0; b < ALL; b += 2 * MIB)
      DEMAND(there[b / MIB] ? fake.backed(0, start + b, 2 * MIB) : name != NULL || !fake.backed(0, start + b, 2 * MIB));
  }
  for (uint64_t at = 0; at < ALL; at += UNIT) {
    DEMAND(prim->granule_at(prim->self, start + at + MIB, &base, &size) == 0);
    DEMAND(base == start + at && size == UNIT);
    if (there[at / MIB])
      failed += prim->give_back(prim->self, start + at, UNIT) != 0;
  }
  return failed;
}

/* carried has memory go from room to room, in granules of 6 and 2 MiB: the large ones that get small ones
 * are in pieces, and stay so wherever that memory goes. It says how many calls failed. */
static int carried(const sp_prim *prim) {
  enum { UNIT = 6 * MIB };
  uint64_t large, small, base, size;
  if (prim->extend(prim->self, 0, 2 * UNIT, 8 * UNIT, UNIT, &large) != 0)
    return 1;
  if (prim->extend(prim->self, 0, UNIT, 8 * UNIT, 2 * MIB, &small) != 0)
    return 1 + (prim->give_back(prim->self, large, 2 * UNIT) != 0);
  int failed = 0, moved = 0, again = 0;
  uint64_t to = large + 3 * UNIT, pieces = to + UNIT, back = large + UNIT;
  const sp_span first[] = {{large + UNIT, UNIT}, {small, 4 * MIB}}, second[] = {{pieces, UNIT}};
  moved = prim->carry(prim->self, to, 3 * UNIT, first, 2) == 0;
  failed += !moved;
  DEMAND(!moved || fake.backed(0, to, 3 * UNIT));
  DEMAND(fake.backed(0, large, 2 * UNIT) && fake.backed(0, small, UNIT)); /* it is at both */
  if (moved) {
    DEMAND(prim->granule_at(prim->self, pieces + 3 * MIB, &base, &size) == 0 && base == pieces + 2 * MIB && size == 2 * MIB);
    DEMAND(prim->granule_at(prim->self, to + 3 * MIB, &base, &size) == 0 && base == to && size == UNIT);
    int gone = prim->give_back(prim->self, back, UNIT) == 0;
    failed += !gone;
    failed += prim->give_back(prim->self, small, 4 * MIB) != 0;
    failed += prim->allow_peer(prim->self, 1) != 0;
    DEMAND(fake.backed(0, to, 3 * UNIT) && fake.backed(0, small + 4 * MIB, 2 * MIB));
    again = gone && prim->carry(prim->self, back, UNIT, second, 1) == 0;
    failed += gone && !again;
    DEMAND(!again || (fake.backed(0, back, UNIT) && prim->granule_at(prim->self, back, &base, &size) == 0 && size == 2 * MIB));
    failed += prim->give_back(prim->self, to, 3 * UNIT) != 0;
    DEMAND(!again || fake.backed(0, back, UNIT));
    if (again)
      failed += prim->give_back(prim->self, back, UNIT) != 0;
  }
  failed += prim->give_back(prim->self, moved ? small + 4 * MIB : small, moved ? 2 * MIB : UNIT) != 0;
  failed += prim->give_back(prim->self, large, moved ? UNIT : 2 * UNIT) != 0;
  return failed;
}

/* any_call_of runs what uses the primitives again and again, while each call of the driver fails once. */
static void any_call_of(int (*use)(const sp_prim *prim)) {
  const char *name;
  long calls = 0;
  for (long n = 0; n <= calls; n++) {
    sp_prim prim = open_cuda(0);
    fake.fail(n, 0);
    int failed = use(&prim);
    long made = fake.calls(&name);
    calls = n == 0 ? made : calls;
    DEMAND(failed <= 1 && (n > 0 || failed == 0));
    fake.fail(0, 0);
    prim.close(prim.self);
    DEMAND((n > 0 && name != NULL && keeps(name)) || nothing_is_left());
    fake.reset();
  }
  DEMAND(calls > 20);
}

/* Fabric handles are asked for if the device knows them, and not any more if this process
 * may not use them. */
static void fabric_handles(void) {
  for (int permitted = 0; permitted < 2; permitted++) {
    stplan_device *d;
    int exportable;
    fake.fabric(1, permitted);
    fake.handles(&exportable);
    sp_prim prim = open_cuda(0);
    DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
    DEMAND(stplan_malloc(d, 3 * MIB, 0, NULL, NULL) != 0);
    DEMAND(fake.handles(&exportable) == 2 && exportable == (permitted ? 9 : 1));
    stplan_close(d);
    DEMAND(nothing_is_left());
  }
  fake.fabric(0, 0);
}

int main(int argc, char **argv) {
  DEMAND(argc == 2 && atol(argv[1]) > 0);
  find_driver();
  conformance_device device = {.open = open_cuda, .stream = {0, fake.stream(0), fake.stream(0)}};
  for (memory = SP_CUDA_PLAIN; memory <= SP_CUDA_VIRTUAL; memory++) {
    conformance(&device);
    streams_are_of_the_device();
    DEMAND(nothing_is_left());
    for (still = 0; still < 2; still++)
      any_call_may_fail(atol(argv[1]));
    still = 0;
    the_device_may_be_lost(atol(argv[1]));
  }
  memory = SP_CUDA_VIRTUAL;
  large_handles();
  any_call_of(in_a_room);
  any_call_of(carried);
  fabric_handles();
  return 0;
}
