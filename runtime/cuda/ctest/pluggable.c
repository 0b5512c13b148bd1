/* pluggable.c: the functions that torch's pluggable allocator calls, on
 * simulated devices. Errors are noted instead of thrown. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../pluggable.h"
#include "../prim_host.h"

#include "conformance.h"

enum { MIB = 1 << 20, DEVICES = 5 };

#define CAPACITY (UINT64_C(64) * MIB)

static sp_prim prims[DEVICES]; /* of the devices that are open */
static int stalled;            /* a device that is opened now does nothing */
static int thrown[2];          /* by class */
static char said[512];

static int open_host(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  const sp_host_options options = {
      .base = UINT64_C(1) << (40 + ordinal), .capacity = CAPACITY, .granularity = 2 * MIB, .partial = memory != SP_CUDA_PLAIN};
  if (ordinal >= DEVICES) {
    snprintf(error, size, "no such device");
    return 0;
  }
  DEMAND(sp_host_open(&options, prim));
  prims[ordinal] = *prim;
  sp_host_lag(prim, stalled ? SP_HOST_STALLED : 0);
  return 1;
}

static void note(sp_throw_class class, const char *message) {
  thrown[class]++;
  snprintf(said, sizeof said, "%s", message);
}

static void *stream(uintptr_t handle) { return (void *)handle; }

static stplan_counters counters(int device) {
  stplan_statistics s;
  stplan_counters c;
  DEMAND(stplan_pluggable_read(device, &s, &c));
  return c;
}

static stplan_statistics statistics(int device) {
  stplan_statistics s;
  stplan_counters c;
  DEMAND(stplan_pluggable_read(device, &s, &c));
  return s;
}

static void blocks_come_and_go(void) {
  stplan_statistics s;
  stplan_counters c;
  DEMAND(!stplan_pluggable_read(0, &s, &c));
  DEMAND(stplan_pluggable_malloc(0, 0, stream(1)) == NULL && thrown[SP_THROW_OUT_OF_MEMORY] == 0);
  void *p = stplan_pluggable_malloc(3000, 0, stream(1));
  DEMAND(p != NULL && counters(0).allocated_bytes == 3072);
  stplan_pluggable_free(p, 3000, 0, stream(1));
  DEMAND(stplan_pluggable_malloc(3000, 0, stream(1)) == p);
  stplan_pluggable_free(p, 3000, 0, stream(1));
  DEMAND(counters(0).allocated_bytes == 0 && counters(0).reserved_bytes == 2 * MIB);
  stplan_pluggable_empty_cache();
  DEMAND(counters(0).reserved_bytes == 0 && counters(0).refused_frees == 0);
}

/* Memory that a recorded stream uses is not reused by the block's own stream
 * before that waits. */
static void recorded_streams_are_waited_for(void) {
  void *p = stplan_pluggable_malloc(4 * MIB, 1, stream(1));
  void *q = stplan_pluggable_malloc(512, 1, stream(2));
  stplan_pluggable_record_stream(p, stream(2));
  stplan_pluggable_free(p, 4 * MIB, 1, stream(1));
  DEMAND(stplan_pluggable_malloc(4 * MIB, 1, stream(1)) == p && counters(1).waits == 1);
  stplan_pluggable_free(p, 4 * MIB, 1, stream(1));
  stplan_pluggable_free(q, 512, 1, stream(2));
}

/* While an exchange is under way, from its announcement on, only a stream that the program has
 * made wait for it may be made to wait for what comes behind. Nothing is done on the device here. */
static void exchanges_are_followed(void) {
  DEMAND(stplan_pluggable_exchange_begins(STPLAN_DEVICES) == 0 && stplan_pluggable_exchange_begins(-1) == 0);
  stplan_pluggable_exchange_enqueued(2, 0);
  void *p = stplan_pluggable_malloc(4 * MIB, 1, stream(1));
  uint64_t receive = stplan_pluggable_exchange_begins(1), waits = counters(1).waits;
  DEMAND(receive != 0);
  sp_host_lag(&prims[1], SP_HOST_STALLED);
  stplan_pluggable_free(p, 4 * MIB, 1, stream(1));
  void *q = stplan_pluggable_malloc(4 * MIB, 1, stream(2));
  stplan_pluggable_exchange_awaited(1, receive, 2);
  void *r = stplan_pluggable_malloc(4 * MIB, 1, stream(2));
  DEMAND(q != p && r != p && counters(1).waits == waits);
  stplan_pluggable_exchange_enqueued(1, receive);
  stplan_pluggable_exchange_awaited(1, receive, 2);
  DEMAND(stplan_pluggable_malloc(4 * MIB, 1, stream(2)) == p && counters(1).waits == waits + 1);
  stplan_pluggable_free(p, 4 * MIB, 1, stream(2));
  stplan_pluggable_free(q, 4 * MIB, 1, stream(2));
  stplan_pluggable_free(r, 4 * MIB, 1, stream(2));
  sp_host_lag(&prims[1], 0);
}

/* The same holds for exchanges that were announced before their device was in use, until the
 * last of their calls has returned and the device has done what it was given before. That they
 * were announced does not open the device. */
static void early_exchanges_are_followed(int device, int all_enqueued) {
  enum { SIZE = 4 * MIB };
  stplan_statistics s;
  stplan_counters c;
  uint64_t receive = stplan_pluggable_exchange_begins(device), send = stplan_pluggable_exchange_begins(device);
  DEMAND(receive != 0 && send != 0 && !stplan_pluggable_read(device, &s, &c));
  if (all_enqueued) {
    stplan_pluggable_exchange_enqueued(device, receive);
    stplan_pluggable_exchange_enqueued(device, send);
  }
  stalled = 1;
  void *p = stplan_pluggable_malloc(SIZE, device, stream(1)), *small = stplan_pluggable_malloc(512, device, stream(2));
  stalled = 0;
  if (!all_enqueued)
    stplan_pluggable_exchange_enqueued(device, receive);
  stplan_pluggable_exchange_awaited(device, receive, 2); /* it is not told apart from the other */
  stplan_pluggable_free(p, SIZE, device, stream(1));
  void *q = stplan_pluggable_malloc(SIZE, device, stream(2));
  DEMAND(q != p && counters(device).waits == 0);
  sp_host_lag(&prims[device], 0);
  DEMAND(stplan_pluggable_malloc(SIZE, device, stream(2)) == p); /* all is done, and if all calls had returned no exchange is under way */
  DEMAND(counters(device).waits == (uint64_t)all_enqueued);
  sp_host_lag(&prims[device], SP_HOST_STALLED);
  stplan_pluggable_free(p, SIZE, device, stream(2));
  void *r = stplan_pluggable_malloc(SIZE, device, stream(1));
  DEMAND((r == p) == all_enqueued && counters(device).waits == 2 * (uint64_t)all_enqueued);
  if (!all_enqueued)
    stplan_pluggable_exchange_enqueued(device, send);
  sp_host_lag(&prims[device], 0);
  void *t = stplan_pluggable_malloc(2 * SIZE, device, stream(1));
  stplan_pluggable_free(t, 2 * SIZE, device, stream(1));
  DEMAND(stplan_pluggable_malloc(2 * SIZE, device, stream(2)) == t); /* it looks what is done */
  sp_host_lag(&prims[device], SP_HOST_STALLED);
  uint64_t waits = counters(device).waits;
  stplan_pluggable_free(t, 2 * SIZE, device, stream(2));
  DEMAND(stplan_pluggable_malloc(2 * SIZE, device, stream(1)) == t && counters(device).waits == waits + 1); /* no exchange is under way */
  stplan_pluggable_free(small, 512, device, stream(2));
  sp_host_lag(&prims[device], 0);
}

/* A graph replays its addresses, so nobody else ever gets them, not even the
 * next capture. The same capture may use them again. */
static void captures_keep_their_memory(void) {
  void *before = stplan_pluggable_malloc(MIB, 0, stream(1));
  stplan_pluggable_free(before, MIB, 0, stream(1));
  sp_host_capture(&prims[0], 1);
  void *p = stplan_pluggable_malloc(MIB, 0, stream(1));
  DEMAND(p != NULL && p != before);
  stplan_pluggable_free(p, MIB, 0, stream(1));
  DEMAND(stplan_pluggable_malloc(MIB, 0, stream(1)) == p);
  stplan_pluggable_record_stream(p, stream(2)); /* which nothing can wait for while capturing */
  stplan_pluggable_free(p, MIB, 0, stream(1));
  void *other = stplan_pluggable_malloc(MIB, 0, stream(1));
  DEMAND(other != p && other != before);
  stplan_pluggable_free(other, MIB, 0, stream(1));
  sp_host_capture(&prims[0], UINT64_MAX);
  void *kept = stplan_pluggable_malloc(MIB, 0, stream(1));
  DEMAND(kept == before);
  sp_host_capture(&prims[0], 1);
  void *q = stplan_pluggable_malloc(MIB, 0, stream(1));
  DEMAND(q != p && q != other && q != before);
  sp_host_capture(&prims[0], UINT64_MAX);
  const stplan_statistics s = statistics(0);
  DEMAND(s.all.bytes.current == 2 * MIB && s.all.blocks.current == 2 && s.reserved.current == 8 * MIB);
  DEMAND(s.all.bytes.peak == 2 * MIB && s.reserved.peak == 8 * MIB);
  stplan_range ranges[16];
  size_t count = stplan_pluggable_ranges(0, ranges, 16), live = 0;
  DEMAND(count <= 16 && stplan_pluggable_ranges(0, ranges, 1) == count);
  count = stplan_pluggable_ranges(0, ranges, 16);
  for (size_t i = 0; i < count; i++)
    live += ranges[i].live;
  DEMAND(live == 2);
  stplan_pluggable_free(q, MIB, 0, stream(1));
  stplan_pluggable_free(kept, MIB, 0, stream(1));
  DEMAND(statistics(0).all.bytes.current == 0 && counters(0).refused_frees == 0);
  stplan_pluggable_reset_peaks(0);
  stplan_pluggable_reset_sums(0);
  DEMAND(statistics(0).all.bytes.peak == 0 && statistics(0).all.bytes.removed == 0);
  stplan_pluggable_free(q, MIB, 0, stream(1));
  DEMAND(counters(0).refused_frees == 1);
}

/* A forked child leaves its parent's memory alone, and gets none. */
static void children_touch_nothing(void) {
  void *p = stplan_pluggable_malloc(MIB, 0, stream(1));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    memset(thrown, 0, sizeof thrown);
    stplan_pluggable_free(p, MIB, 0, stream(1));
    stplan_pluggable_empty_cache();
    DEMAND(stplan_pluggable_exchange_begins(0) == 0);
    DEMAND(stplan_pluggable_malloc(MIB, 0, stream(1)) == NULL && thrown[SP_THROW_ERROR] == 1);
    _exit(0);
  }
  int status;
  DEMAND(waitpid(child, &status, 0) == child && status == 0);
  stplan_pluggable_free(p, MIB, 0, stream(1));
}

static void what_fails_throws(void) {
  memset(thrown, 0, sizeof thrown);
  stplan_pluggable_malloc(CAPACITY + 1, 1, stream(1));
  DEMAND(thrown[SP_THROW_OUT_OF_MEMORY] == 1 && strncmp(said, "CUDA out of memory. Tried to allocate 64.00 MiB. On GPU 1 ", 58) == 0);
  stplan_pluggable_limit(1, 4 * MIB);
  stplan_pluggable_malloc(8 * MIB, 1, stream(1));
  DEMAND(thrown[SP_THROW_OUT_OF_MEMORY] == 2 && strstr(said, "; its limit is 4.00 MiB") != NULL);
  stplan_pluggable_malloc(1, DEVICES, stream(1)); /* says so on standard error */
  DEMAND(thrown[SP_THROW_ERROR] == 1 && strcmp(said, "stplan: cuda:5 is not served") == 0);
  void *p = NULL;
  for (uintptr_t s = 0; s < 64; s++)
    DEMAND((p = stplan_pluggable_malloc(512, 2, stream(s))) != NULL);
  stplan_pluggable_malloc(512, 2, stream(64));
  DEMAND(thrown[SP_THROW_ERROR] == 2 && strstr(said, "more than 64 streams use memory of cuda:2") != NULL);
  stplan_pluggable_record_stream(p, stream(64));
  DEMAND(thrown[SP_THROW_ERROR] == 3);
}

/* Outside a process that has loaded torch there is nothing to throw. */
static void torch_has_to_be_there(void) {
  const stplan_settings settings = {0};
  char error[256] = "";
  DEMAND(stplan_pluggable_start(&settings, error, sizeof error) == STPLAN_FAILED);
  DEMAND(strcmp(error, "torch's libc10.so is not loaded in this process") == 0);
}

int main(void) {
  const stplan_settings settings = {.memory = SP_CUDA_VIRTUAL};
  char error[256];
  torch_has_to_be_there();
  DEMAND(stplan_pluggable_start_on(open_host, note, &settings, error, sizeof error) == STPLAN_OK);
  blocks_come_and_go();
  recorded_streams_are_waited_for();
  exchanges_are_followed();
  early_exchanges_are_followed(3, 0);
  early_exchanges_are_followed(4, 1);
  captures_keep_their_memory();
  children_touch_nothing();
  what_fails_throws();
  return 0;
}
