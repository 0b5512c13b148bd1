/* fake_driver.c: a libcuda.so.1 with two simulated devices. It is strict: what
 * the documentation of the real driver does not allow ends the process. Any
 * call that can fail can be made to fail. Addresses of memory follow one
 * another without a gap, so that pieces that should be apart can touch. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, NOT_PERMITTED = 800, FAILED = 999 };
enum { VIRTUAL_SUPPORTED = 102, FILE_SUPPORTED = 103, FABRIC_SUPPORTED = 128, RELAXED = 2, READ_WRITE = 3, TO_FILE = 1, TO_FABRIC = 8 };
enum { GRANULES = 1 << 15, HANDLES = 1 << 12, PIECES = 1 << 12, EVENTS = 1 << 13, STREAMS = 64, DEPTH = 16 };

#define VIRTUAL_BASE (UINT64_C(1) << 44)
#define PLAIN_BASE (UINT64_C(1) << 45)

#define STRICT(what)                                                       \
  do {                                                                     \
    if (!(what)) {                                                         \
      fprintf(stderr, "%s: the driver does not allow: not %s\n", __func__, #what); \
      abort();                                                             \
    }                                                                      \
  } while (0)

typedef struct {
  int ordinal;
  long retained;
  uint64_t used;
} device;

/* An event or a stream. */
typedef struct {
  int of; /* the device's number */
  int there;
} object;

typedef struct {
  int references, of, exportable;
  uint64_t size;
} handle;

/* A granule of addresses: reserved, backed by a handle, open to devices. */
typedef struct {
  uint32_t reserved; /* granules that are reserved from here on in one piece; 0 if no piece begins here */
  uint8_t taken;     /* by a reservation */
  uint8_t open;      /* one bit for each device */
  int backing;       /* handle, or 0 */
  uint32_t mapped;   /* granules that are mapped from here on in one piece; 0 if no piece begins here */
} granule;

typedef struct {
  int type, id;
} place;

typedef struct {
  place location;
  int flags;
} access_right;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything below */
static device devices[FAKE_DEVICES] = {{.ordinal = 0}, {.ordinal = 1}};
static granule granules[GRANULES];
static handle handles[HANDLES]; /* handle 0 is not used */
static struct {
  uint64_t address, size;
  int of;
} pieces[PIECES]; /* plain memory */
static uint64_t next_plain = PLAIN_BASE;
static object events[EVENTS], streams[STREAMS];
static int fabric_known, fabric_permitted;
static uint64_t made; /* handles */
static int last_exportable;
static long calls, fail_at;
static int lost;
static const char *failed_call;

static _Thread_local device *stack[DEPTH];
static _Thread_local int depth, mode;

static device *current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

/* fails counts a call that may fail, and says whether this one does. What is not asked of the device works on once it
 * is lost. Locked. */
static int fails(const char *name, int asks_the_device) {
  calls++;
  if (fail_at == 0 || (lost && asks_the_device ? calls < fail_at : calls != fail_at))
    return 0;
  failed_call = name;
  return 1;
}

#define MAY_FAIL             \
  pthread_mutex_lock(&lock); \
  if (fails(__func__, 1))    \
    return done(FAILED);

#define MAY_FAIL_ON_THE_HOST \
  pthread_mutex_lock(&lock); \
  if (fails(__func__, 0))    \
    return done(FAILED);

static int done(int result) {
  pthread_mutex_unlock(&lock);
  return result;
}

static granule *at(uint64_t address) {
  uint64_t i = (address - VIRTUAL_BASE) / FAKE_GRANULE;
  STRICT(address >= VIRTUAL_BASE && address % FAKE_GRANULE == 0 && i < GRANULES);
  return &granules[i];
}

int cuInit(unsigned flags) { return (void)flags, OK; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, ordinal >= 0 && ordinal < FAKE_DEVICES ? OK : INVALID; }
int cuDeviceTotalMem_v2(size_t *total, int of) { return (void)of, *total = FAKE_TOTAL, OK; }
int cuDeviceGetAttribute(int *value, int attribute, int of) {
  (void)of;
  *value = attribute == VIRTUAL_SUPPORTED || attribute == FILE_SUPPORTED || (attribute == FABRIC_SUPPORTED && fabric_known);
  return OK;
}
int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int which) {
  return (void)properties, (void)which, *granularity = FAKE_GRANULE, OK;
}

int cuDevicePrimaryCtxRetain(void **context, int of) {
  MAY_FAIL_ON_THE_HOST
  devices[of].retained++;
  *context = &devices[of];
  return done(OK);
}

int cuDevicePrimaryCtxRelease_v2(int of) {
  pthread_mutex_lock(&lock);
  STRICT(devices[of].retained > 0);
  devices[of].retained--;
  return done(OK);
}

int cuCtxPushCurrent_v2(void *context) {
  MAY_FAIL_ON_THE_HOST
  STRICT(depth < DEPTH);
  stack[depth++] = context;
  return done(OK);
}

int cuCtxPopCurrent_v2(void **context) {
  STRICT(depth > 0);
  *context = stack[--depth];
  return OK;
}

int cuCtxSynchronize(void) {
  MAY_FAIL
  STRICT(current() != NULL && mode == RELAXED); /* or it would end captures */
  return done(OK);
}

int cuThreadExchangeStreamCaptureMode(int *other) {
  MAY_FAIL_ON_THE_HOST
  int old = mode;
  mode = *other;
  *other = old;
  return done(OK);
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  MAY_FAIL
  STRICT(current() != NULL);
  *total = FAKE_TOTAL;
  *available = FAKE_TOTAL - current()->used;
  return done(OK);
}

int cuMemAlloc_v2(uint64_t *address, size_t n) {
  MAY_FAIL
  STRICT(current() != NULL && mode == RELAXED && n > 0);
  if (n > FAKE_TOTAL - current()->used)
    return done(OUT_OF_MEMORY);
  int i = 0;
  while (pieces[i].size != 0)
    i++;
  STRICT(i < PIECES);
  pieces[i].address = *address = next_plain;
  pieces[i].size = n;
  pieces[i].of = current()->ordinal;
  next_plain += n;
  current()->used += n;
  return done(OK);
}

int cuMemFree_v2(uint64_t address) {
  MAY_FAIL
  STRICT(mode == RELAXED);
  int i = 0;
  while (i < PIECES && pieces[i].address != address)
    i++;
  STRICT(i < PIECES && pieces[i].size > 0);
  devices[pieces[i].of].used -= pieces[i].size;
  pieces[i].size = pieces[i].address = 0;
  return done(OK);
}

int cuMemAddressReserve(uint64_t *address, size_t n, size_t alignment, uint64_t wish, unsigned long long flags) {
  (void)alignment, (void)wish, (void)flags;
  MAY_FAIL
  STRICT(n > 0 && n % FAKE_GRANULE == 0);
  uint64_t wanted = n / FAKE_GRANULE, run = 0, i = 0;
  for (; i < GRANULES && run < wanted; i++)
    run = granules[i].taken ? 0 : run + 1;
  if (run < wanted)
    return done(OUT_OF_MEMORY);
  i -= wanted;
  granules[i].reserved = (uint32_t)wanted;
  for (uint64_t k = 0; k < wanted; k++)
    granules[i + k].taken = 1;
  *address = VIRTUAL_BASE + i * FAKE_GRANULE;
  return done(OK);
}

int cuMemAddressFree(uint64_t address, size_t n) {
  MAY_FAIL
  granule *g = at(address);
  STRICT(g->reserved > 0 && g->reserved == n / FAKE_GRANULE);
  for (uint64_t k = 0; k < g->reserved; k++)
    if (g[k].backing != 0)
      return done(INVALID);
  for (uint64_t k = 0; k < g->reserved; k++)
    g[k].taken = 0;
  g->reserved = 0;
  return done(OK);
}

int cuMemCreate(unsigned long long *out, size_t n, const void *properties, unsigned long long flags) {
  (void)flags;
  MAY_FAIL
  STRICT(n > 0 && n % FAKE_GRANULE == 0 && current() != NULL);
  int requested;
  memcpy(&requested, (const char *)properties + sizeof(int), sizeof requested);
  if ((requested & TO_FABRIC) != 0 && !(fabric_known && fabric_permitted))
    return done(NOT_PERMITTED);
  place location;
  memcpy(&location, (const char *)properties + 2 * sizeof(int), sizeof location);
  STRICT(location.id == current()->ordinal);
  if (n > FAKE_TOTAL - current()->used)
    return done(OUT_OF_MEMORY);
  int i = 1;
  while (handles[i].references > 0)
    i++;
  STRICT(i < HANDLES);
  handles[i] = (handle){.references = 1, .of = location.id, .exportable = requested, .size = n};
  made++;
  last_exportable = requested;
  current()->used += n;
  *out = (unsigned long long)i;
  return done(OK);
}

/* drop takes a reference off a handle. Locked. */
static void drop(int i) {
  STRICT(i > 0 && handles[i].references > 0);
  if (--handles[i].references == 0)
    devices[handles[i].of].used -= handles[i].size;
}

int cuMemRelease(unsigned long long i) {
  pthread_mutex_lock(&lock);
  drop((int)i);
  return done(OK);
}

int cuMemMap(uint64_t address, size_t n, size_t offset, unsigned long long i, unsigned long long flags) {
  (void)flags;
  MAY_FAIL
  granule *g = at(address);
  STRICT(offset == 0 && handles[i].references > 0 && n == handles[i].size);
  for (uint64_t k = 0; k < n / FAKE_GRANULE; k++) {
    STRICT(g[k].taken);
    if (g[k].backing != 0)
      return done(INVALID);
  }
  for (uint64_t k = 0; k < n / FAKE_GRANULE; k++) {
    g[k].backing = (int)i;
    g[k].open = 0;
  }
  g->mapped = (uint32_t)(n / FAKE_GRANULE);
  handles[i].references++;
  return done(OK);
}

int cuMemUnmap(uint64_t address, size_t n) {
  MAY_FAIL
  granule *g = at(address);
  STRICT(n > 0 && g->mapped == n / FAKE_GRANULE && g->backing != 0); /* what was mapped in one goes in one */
  drop(g->backing);
  for (uint64_t k = 0; k < g->mapped; k++)
    g[k].backing = 0;
  g->mapped = 0;
  return done(OK);
}

int cuMemSetAccess(uint64_t address, size_t n, const void *rights, size_t count) {
  MAY_FAIL
  for (uint64_t k = 0; k < n; k += FAKE_GRANULE)
    if (at(address + k)->backing == 0)
      return done(INVALID);
  for (size_t i = 0; i < count; i++) {
    const access_right *r = (const access_right *)rights + i;
    STRICT(r->flags == READ_WRITE && r->location.id < FAKE_DEVICES);
    for (uint64_t k = 0; k < n; k += FAKE_GRANULE)
      at(address + k)->open |= (uint8_t)(1 << r->location.id);
  }
  return done(OK);
}

/* make is a new object in a table. Locked. */
static object *make(object *table, int room, int of) {
  int i = 0;
  while (i < room && table[i].there)
    i++;
  STRICT(i < room);
  table[i] = (object){.of = of, .there = 1};
  return &table[i];
}

int cuEventCreate(void **event, unsigned flags) {
  (void)flags;
  MAY_FAIL
  STRICT(current() != NULL);
  *event = make(events, EVENTS, current()->ordinal);
  return done(OK);
}

int cuEventDestroy_v2(void *event) {
  pthread_mutex_lock(&lock);
  STRICT(((object *)event)->there);
  ((object *)event)->there = 0;
  return done(OK);
}

/* device_of is a stream's; the default one is the current context's. */
static int device_of(const void *stream) { return stream == NULL ? current()->ordinal : ((const object *)stream)->of; }

int cuEventRecord(void *event, void *stream) {
  MAY_FAIL
  STRICT(current() != NULL && ((object *)event)->there);
  return done(((object *)event)->of == device_of(stream) ? OK : INVALID_HANDLE);
}

int cuCtxRecordEvent(void *context, void *event) {
  MAY_FAIL
  STRICT(context != NULL && ((object *)event)->there);
  return done(((object *)event)->of == ((const device *)context)->ordinal ? OK : INVALID_HANDLE);
}

int cuEventQuery(void *event) {
  MAY_FAIL
  STRICT(current() != NULL && mode == RELAXED && ((object *)event)->there);
  return done(OK);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  (void)stream, (void)flags;
  MAY_FAIL
  STRICT(current() != NULL && ((object *)event)->there);
  return done(OK);
}

int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void *graph, void *before, size_t *count) {
  (void)stream, (void)graph, (void)before, (void)count;
  MAY_FAIL
  *id = 0;
  *status = 0;
  return done(OK);
}

/* Functions that the runtime looks up, and the tests never call. */
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) { return (void)base, (void)size, (void)address, INVALID; }
int cuIpcGetMemHandle(void *out, uint64_t address) { return (void)out, (void)address, INVALID; }

int cuMemRetainAllocationHandle(unsigned long long *out, void *address) {
  MAY_FAIL
  uint64_t granule = (uint64_t)(uintptr_t)address / FAKE_GRANULE * FAKE_GRANULE;
  int i = at(granule)->backing;
  if (i == 0)
    return done(INVALID);
  handles[i].references++;
  *out = (unsigned long long)i;
  return done(OK);
}

int cuMemExportToShareableHandle(void *out, unsigned long long i, int type, unsigned long long flags) {
  (void)flags;
  MAY_FAIL
  STRICT(type == TO_FILE && handles[i].references > 0 && (handles[i].exportable & TO_FILE) != 0);
  int file = open("/dev/null", O_RDONLY);
  memcpy(out, &file, sizeof file);
  return done(file < 0);
}

void fake_fabric(int known, int permitted) {
  pthread_mutex_lock(&lock);
  fabric_known = known;
  fabric_permitted = permitted;
  done(OK);
}

uint64_t fake_handles(int *exportable) {
  pthread_mutex_lock(&lock);
  uint64_t count = made;
  *exportable = last_exportable;
  made = 0;
  done(OK);
  return count;
}

void fake_fail(long n, int is_lost) {
  pthread_mutex_lock(&lock);
  calls = 0;
  fail_at = n;
  lost = is_lost;
  failed_call = NULL;
  done(OK);
}

long fake_calls(const char **failed) {
  *failed = failed_call;
  return calls;
}

int fake_backed(int of, uint64_t address, uint64_t size) {
  pthread_mutex_lock(&lock);
  int backed = 0;
  if (address >= PLAIN_BASE) {
    for (int i = 0; i < PIECES && !backed; i++)
      backed = address >= pieces[i].address && address - pieces[i].address < pieces[i].size && size <= pieces[i].size - (address - pieces[i].address);
    return done(backed);
  }
  backed = 1;
  for (uint64_t k = address / FAKE_GRANULE * FAKE_GRANULE; k < address + size; k += FAKE_GRANULE)
    backed = backed && at(k)->backing != 0 && (at(k)->open >> of & 1);
  return done(backed);
}

fake_rest fake_left(void) {
  fake_rest left = {0};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < FAKE_DEVICES; i++) {
    left.memory += devices[i].used;
    left.contexts += (uint64_t)devices[i].retained;
  }
  for (int i = 0; i < GRANULES; i++)
    left.addresses += granules[i].taken ? FAKE_GRANULE : 0;
  for (int i = 0; i < EVENTS; i++)
    left.events += (uint64_t)events[i].there;
  for (int i = 0; i < HANDLES; i++)
    left.handles += handles[i].references > 0;
  done(OK);
  return left;
}

void fake_reset(void) {
  pthread_mutex_lock(&lock);
  memset(granules, 0, sizeof granules);
  memset(handles, 0, sizeof handles);
  memset(pieces, 0, sizeof pieces);
  for (int i = 0; i < FAKE_DEVICES; i++)
    devices[i] = (device){.ordinal = i};
  memset(events, 0, sizeof events);
  depth = mode = 0;
  done(OK);
}

uint64_t fake_stream(int of) {
  pthread_mutex_lock(&lock);
  const object *stream = make(streams, STREAMS, of);
  done(OK);
  return (uint64_t)(uintptr_t)stream;
}
