/* history.c: histories of device objects: bounded, written while requests go on, and off
 * unless they are asked for. What they say is tested with the reader of their files. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../history.h"
#include "../prim_host.h"

#include "conformance.h"

enum { THREADS = 8, REQUESTS = 4000, DEPTH = 20, HEADER = 40, RECORD = 40 };

static stplan_device *open_device(void) {
  sp_host_options options = {.base = UINT64_C(1) << 40, .capacity = UINT64_C(1) << 40, .granularity = 2 << 20, .partial = 1};
  sp_prim prim;
  stplan_device *d;
  DEMAND(sp_host_open(&options, &prim));
  DEMAND(stplan_open(&prim, NULL, 0, &d) == STPLAN_OK);
  return d;
}

/* written is the file of a device's history. */
static size_t written(stplan_device *d, unsigned char *into, size_t room) {
  static const char path[] = "kept.history";
  stplan_recorded of = {.device = d, .ordinal = 0};
  unlink(path);
  DEMAND(stplan_history_write(&of, 1, 3, path) == STPLAN_OK);
  FILE *f = fopen(path, "rb");
  if (f == NULL)
    return 0;
  size_t n = fread(into, 1, room, f);
  fclose(f);
  DEMAND(access("kept.history.tmp", F_OK) != 0);
  return n;
}

static uint64_t number(const unsigned char *at) {
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--)
    n = n << 8 | at[i];
  return n;
}

static unsigned char file[8 << 20];

static void off(void) {
  stplan_device *d = open_device();
  DEMAND(stplan_history_begin(d, sizeof(sp_history_chunk) - 1) == STPLAN_FAILED);
  uint64_t p = stplan_malloc(d, 1, 0, NULL, NULL);
  DEMAND(stplan_history_begin(d, 1 << 20) == STPLAN_FAILED); /* too late */
  stplan_history_step(d, 0);
  stplan_free(d, p, 0);
  DEMAND(written(d, file, sizeof file) == 0);
  stplan_close(d);
}

/* full: of two chunks, and of none. */
static void full(void) {
  stplan_device *d = open_device();
  DEMAND(stplan_history_begin(d, 2 * sizeof(sp_history_chunk)) == STPLAN_OK);
  DEMAND(stplan_history_begin(d, 2 * sizeof(sp_history_chunk)) == STPLAN_FAILED); /* there is one */
  DEMAND(written(d, file, sizeof file) == 0);
  for (int i = 0; i < 100000; i++)
    stplan_free(d, stplan_malloc(d, 3 << 20, 0, NULL, NULL), 0);
  size_t n = written(d, file, sizeof file);
  uint64_t length = number(file + HEADER + 8), records = number(file + HEADER + 16), allocations = number(file + HEADER + 24);
  DEMAND(n == HEADER + RECORD + 8 + (length + 7) / 8 * 8 && number(file + 16) == n);
  DEMAND(file[HEADER + 32] == 1 && file[32] == 3);
  /* An allocation of 6,144 units has 3 bytes, and its free one. */
  DEMAND(length > 2 * (SP_HISTORY_CHUNK - SP_HISTORY_RECORD) && length <= 2 * SP_HISTORY_CHUNK);
  DEMAND(records == allocations * 2 && length == allocations * 4);
  stplan_history_end(d);
  DEMAND(written(d, file, sizeof file) == 0);
  stplan_close(d);
}

/* exchanges: that they begin, and which streams of the device wait for them. */
static void exchanges(void) {
  stplan_device *d = open_device();
  stplan_exchange_enqueued(d, stplan_exchange_begins(d)); /* before the history */
  uint64_t early = stplan_exchange_begins(d);
  stplan_exchange_enqueued(d, early);
  DEMAND(stplan_history_begin(d, 1 << 20) == STPLAN_OK);
  stplan_malloc(d, 512, 0, NULL, NULL);
  stplan_exchange_awaited(d, early, 0);
  uint64_t first = stplan_exchange_begins(d);
  stplan_exchange_enqueued(d, first);
  stplan_exchange_awaited(d, first, 0);
  uint64_t second = stplan_exchange_begins(d);
  stplan_exchange_enqueued(d, second);
  stplan_exchange_awaited(d, first, 0);
  stplan_exchange_awaited(d, second, 9); /* no stream of the device */
  stplan_exchange_awaited(d, 0, 0);
  static const unsigned char records[] = {1 << 3 | 1, 7, 1 << 3 | 7, 0, 7, 2 << 3 | 7, 0};
  size_t n = written(d, file, sizeof file);
  DEMAND(n == HEADER + RECORD + 8 + 8 && file[8] == 3);
  DEMAND(number(file + HEADER + 8) == sizeof records && number(file + HEADER + 16) == 5 && number(file + HEADER + 24) == 1);
  DEMAND(memcmp(file + HEADER + RECORD + 8, records, sizeof records) == 0);
  stplan_close(d);
}

/* failures: requests that got no memory are noted, and a run that ends with one has its plan made,
 * although none would be due. */
static void failures(void) {
  stplan_device *d = open_device();
  DEMAND(stplan_history_begin(d, 1 << 20) == STPLAN_OK);
  stplan_set_limit(d, 8 << 20);
  uint64_t a = stplan_malloc(d, 1 << 20, 0, NULL, NULL);
  for (int i = 0; i < 4; i++)
    DEMAND(stplan_learn_due(d, 4, 0) == (i == 3));
  stplan_learn_made(d);
  DEMAND(!stplan_learn_due(d, 4, 1));
  stplan_status status;
  DEMAND(stplan_malloc(d, (9 << 20) + 1, 7, NULL, &status) == 0 && status == STPLAN_NO_MEMORY);
  DEMAND(stplan_learn_due(d, 4, 1));
  DEMAND(stplan_malloc(d, (size_t)-1, 0, NULL, &status) == 0); /* is no size of a program */
  stplan_free(d, a, 0);
  DEMAND(stplan_learn_due(d, 4, 1)); /* as it goes down */
  stplan_malloc(d, 512, 0, NULL, NULL);
  DEMAND(!stplan_learn_due(d, 4, 1)); /* it has gone on */
  /* 2,048 units; the failure, 9,437,185 B, on the second stream, of 8 MiB that there could be; the free; one unit. */
  static const unsigned char records[] = {0x81, 0x80, 0x01, 0x86, 0x10, 0x81, 0x80, 0xc0, 0x04, 0x01, 0x80, 0x80, 0x01, 0x04, 0x09};
  size_t n = written(d, file, sizeof file);
  DEMAND(n == HEADER + RECORD + 16 + 16 && number(file + HEADER + 8) == sizeof records);
  DEMAND(number(file + HEADER + 16) == 4 && number(file + HEADER + 24) == 2);
  DEMAND(memcmp(file + HEADER + RECORD + 16, records, sizeof records) == 0);
  stplan_close(d);
}

typedef struct {
  stplan_device *device;
  pthread_t thread;
  uint64_t stream;
} worker;

static void *work(void *of) {
  worker *w = of;
  for (int i = 0; i < REQUESTS / DEPTH; i++) {
    uint64_t p[DEPTH];
    for (int k = 0; k < DEPTH; k++)
      p[k] = stplan_malloc(w->device, (size_t)(k + 1) * 700, w->stream, NULL, NULL);
    for (int k = 0; k < DEPTH; k++) {
      if (k % 4 == 0)
        stplan_record_stream(w->device, p[k], w->stream + 1);
      DEMAND(stplan_release(w->device, p[k], NULL) == STPLAN_OK);
    }
    stplan_mark(w->device);
  }
  return NULL;
}

static void threads(void) {
  stplan_device *d = open_device();
  DEMAND(stplan_history_begin(d, 16 << 20) == STPLAN_OK);
  worker all[THREADS];
  for (int i = 0; i < THREADS; i++) {
    all[i] = (worker){.device = d, .stream = (uint64_t)i};
    DEMAND(pthread_create(&all[i].thread, NULL, work, &all[i]) == 0);
  }
  for (int i = 0; i < 20; i++)
    written(d, file, sizeof file);
  for (int i = 0; i < THREADS; i++)
    pthread_join(all[i].thread, NULL);
  DEMAND(written(d, file, sizeof file) > 0);
  uint64_t rounds = THREADS * (REQUESTS / DEPTH);
  DEMAND(number(file + HEADER + 24) == rounds * DEPTH);
  DEMAND(number(file + HEADER + 16) == rounds * (2 * DEPTH + DEPTH / 4 + 1));
  DEMAND(file[HEADER + 32] == 0);
  stplan_close(d);
}

int main(void) {
  off();
  full();
  exchanges();
  failures();
  threads();
  return 0;
}
