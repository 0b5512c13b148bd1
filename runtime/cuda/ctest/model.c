#include "model.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "conformance.h"

typedef uint32_t vector[MODEL_ALL];

typedef struct {
  void *inner; /* the host's */
  vector known;
  int stream;       /* that it was recorded on; -1: on all */
  uint64_t capture; /* of that stream then, 0 outside one */
} event;

/* What is known of a unit. Only the block's owner touches it, or the runtime
 * while there is none. So a race here means two owners. */
typedef struct {
  vector used;  /* as the runtime was told */
  vector given; /* to each stream, when it was freed */
  int16_t stream; /* of its last block; -1 before */
  uint8_t owned, there;
  uint8_t left; /* its memory is at another address too, where it will stay */
} unit;

struct model {
  model_options options;
  sp_prim host;
  unit *units;
  uint8_t *touched; /* by granule: its units are not as calloc made them */
  atomic_int held;
  pthread_mutex_t lock; /* everything below */
  vector known[MODEL_ALL]; /* what each stream has waited for */
  vector done;             /* what the host has waited for */
  uint32_t met;            /* streams that the runtime knows, as a mask */
  uint32_t exchange;       /* of MODEL_LINK, 0 if none is under way */
  uint64_t captured[MODEL_STREAMS];
  uint64_t captures, seed;
  uint64_t memory, left;
  long events, carried;
};

static void follow(vector into, const vector from) {
  for (int i = 0; i < MODEL_ALL; i++)
    into[i] = from[i] > into[i] ? from[i] : into[i];
}

/* linger gives other threads time between two calls of the device, or in one. */
static void linger(void) {
  for (int i = 0; i < 3; i++)
    sched_yield();
}

/* fails says whether this call fails. Locked. */
static int fails(model *m) {
  m->seed = m->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
  return m->options.failures > 0 && (m->seed >> 33) % m->options.failures == 0;
}

static int may_fail(model *m) {
  pthread_mutex_lock(&m->lock);
  int failed = fails(m);
  pthread_mutex_unlock(&m->lock);
  return failed;
}

/* Bytes of addresses that are cleared together. */
enum { CHUNK = 2 << 20 };

/* The units of models that are closed, for the next ones: those of a device take half a
 * gigabyte, and fresh pages for them took most of a test's time. */
static struct {
  unit *units;
  uint64_t span;
} spare[8];

static uint64_t span_of(const model_options *options) { return SP_HOST_ADDRESSES * options->capacity; }

/* At the end of the process, since a search for leaks would read all of them. */
static void drop_spare(void) {
  for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
    free(spare[i].units);
}

static unit *take_units(uint64_t span) {
  for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
    if (spare[i].units != NULL && spare[i].span == span) {
      unit *units = spare[i].units;
      spare[i].units = NULL;
      return units;
    }
  static int once;
  DEMAND(once++ > 0 || atexit(drop_spare) == 0);
  return calloc(span / MODEL_UNIT, sizeof(unit));
}

/* leave_units keeps a model's units for another, as if they had never been there. */
static void leave_units(model *m) {
  const size_t chunk = CHUNK / MODEL_UNIT;
  uint64_t span = span_of(&m->options);
  for (uint64_t g = 0; g < span / CHUNK; g++)
    if (m->touched[g])
      memset(m->units + g * chunk, 0, chunk * sizeof *m->units);
  for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
    if (spare[i].units == NULL) {
      spare[i].units = m->units;
      spare[i].span = span;
      return;
    }
  free(m->units);
}

static unit *units_at(model *m, uint64_t address, uint64_t size) {
  uint64_t span = span_of(&m->options);
  DEMAND(address >= m->options.base && size <= span && address - m->options.base <= span - size);
  DEMAND(address % MODEL_UNIT == 0 && size % MODEL_UNIT == 0);
  return m->units + (address - m->options.base) / MODEL_UNIT;
}

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t granule, uint64_t *addr) {
  model *m = self;
  if (may_fail(m) || m->host.extend(m->host.self, at, bytes, room, granule, addr) != 0)
    return 1;
  unit *u = units_at(m, *addr, bytes);
  for (uint64_t i = 0; i < bytes / MODEL_UNIT; i++) {
    DEMAND(!u[i].there && !u[i].owned);
    u[i] = (unit){.there = 1, .stream = -1};
  }
  pthread_mutex_lock(&m->lock);
  for (uint64_t g = (*addr - m->options.base) / CHUNK; g * CHUNK < *addr - m->options.base + bytes; g++)
    m->touched[g] = 1;
  m->memory += bytes;
  pthread_mutex_unlock(&m->lock);
  return 0;
}

/* What is known of the memory goes with it, and stays where it was too, until that is given back. */
static int carry(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans) {
  model *m = self;
  if (may_fail(m) || m->host.carry(m->host.self, at, bytes, from, spans) != 0)
    return 1;
  unit *to = units_at(m, at, bytes);
  uint64_t n = bytes / MODEL_UNIT, i = 0;
  for (size_t k = 0; k < spans; k++) {
    unit *u = units_at(m, from[k].addr, from[k].bytes);
    for (uint64_t j = 0; j < from[k].bytes / MODEL_UNIT; j++, i++) {
      DEMAND(i < n && u[j].there && !u[j].owned && !u[j].left && !to[i].there && !to[i].owned);
      to[i] = u[j];
      u[j].left = 1;
    }
  }
  uint64_t old = i * MODEL_UNIT;
  for (; i < n; i++) {
    DEMAND(!to[i].there && !to[i].owned);
    to[i] = (unit){.there = 1, .stream = -1};
  }
  pthread_mutex_lock(&m->lock);
  for (uint64_t g = (at - m->options.base) / CHUNK; g * CHUNK < at - m->options.base + bytes; g++)
    m->touched[g] = 1;
  m->memory += bytes - old;
  m->left += old;
  m->carried++;
  pthread_mutex_unlock(&m->lock);
  return 0;
}

static int give_back(void *self, uint64_t addr, uint64_t bytes) {
  model *m = self;
  DEMAND(atomic_load(&m->held) == 0);
  if (may_fail(m))
    return 1;
  unit *u = units_at(m, addr, bytes), last;
  uint64_t left = 0;
  pthread_mutex_lock(&m->lock);
  for (uint64_t i = 0; i < bytes / MODEL_UNIT; i++) {
    if (i == 0 || memcmp(&u[i], &last, sizeof last) != 0) {
      last = u[i];
      DEMAND(last.there && !last.owned);
      for (int s = 0; s < MODEL_ALL; s++)
        DEMAND(last.used[s] <= m->done[s] && last.given[s] <= m->done[s]); /* its uses have ended */
    }
    left += u[i].left ? MODEL_UNIT : 0;
    u[i].there = u[i].left = 0;
  }
  m->left -= left;
  m->memory -= bytes - left;
  DEMAND(left == bytes || m->left == 0 || m->options.failures > 0); /* or the device would not get the memory */
  pthread_mutex_unlock(&m->lock);
  DEMAND(m->host.give_back(m->host.self, addr, bytes) == 0);
  return 0;
}

static int synchronize(void *self) {
  model *m = self;
  pthread_mutex_lock(&m->lock);
  DEMAND(atomic_load(&m->held) == 0);
  int failed = fails(m);
  for (int s = 0; s < MODEL_ALL && !failed; s++)
    m->done[s] = m->known[s][s];
  if (!failed)
    m->exchange = 0; /* it has waited for that too */
  pthread_mutex_unlock(&m->lock);
  linger();
  DEMAND(atomic_load(&m->held) == 0);
  return failed;
}

static int event_create(void *self, void **out) {
  model *m = self;
  event *e = may_fail(m) ? NULL : calloc(1, sizeof *e);
  if (e == NULL)
    return 1;
  pthread_mutex_lock(&m->lock);
  m->events++;
  pthread_mutex_unlock(&m->lock);
  *out = e;
  return 0;
}

static void event_destroy(void *self, void *e) {
  model *m = self;
  pthread_mutex_lock(&m->lock);
  m->events--;
  pthread_mutex_unlock(&m->lock);
  free(e);
}

static int number_of(uint64_t handle) {
  DEMAND(handle < MODEL_STREAMS);
  return (int)handle;
}

/* An event that is recorded on a captured stream is part of the capture. A
 * stream that waits for it joins the capture, or is refused once the capture
 * has ended (CUDA's error 907). */
static int event_record(void *self, void *of, uint64_t handle) {
  model *m = self;
  event *e = of;
  int s = number_of(handle);
  pthread_mutex_lock(&m->lock);
  int failed = fails(m);
  if (!failed) {
    memcpy(e->known, m->known[s], sizeof e->known);
    e->stream = s;
    e->capture = m->captured[s];
  }
  pthread_mutex_unlock(&m->lock);
  return failed;
}

/* An event of the whole device breaks the captures that are under way. */
static int event_record_whole(void *self, void *of) {
  model *m = self;
  event *e = of;
  pthread_mutex_lock(&m->lock);
  for (int s = 0; s < MODEL_STREAMS; s++)
    DEMAND(m->captured[s] == 0);
  int failed = fails(m);
  if (!failed) {
    *e = (event){.stream = -1};
    for (int s = 0; s < MODEL_ALL; s++)
      follow(e->known, m->known[s]);
  }
  pthread_mutex_unlock(&m->lock);
  return failed;
}

/* behind says whether an event is behind the exchange that is under way. Locked. */
static int behind(const model *m, const event *e) { return m->exchange != 0 && e->known[MODEL_LINK] >= m->exchange; }

static int event_done(void *self, void *of) {
  model *m = self;
  const event *e = of;
  pthread_mutex_lock(&m->lock);
  int done = !fails(m) && e->capture == 0 && !behind(m, e);
  if (done)
    follow(m->done, e->known);
  pthread_mutex_unlock(&m->lock);
  return done;
}

static int stream_wait(void *self, uint64_t handle, void *of) {
  model *m = self;
  const event *e = of;
  int s = number_of(handle);
  pthread_mutex_lock(&m->lock);
  int failed = fails(m) || e->capture != 0;
  DEMAND(m->captured[s] == 0 && (e->capture == 0 || e->capture != m->captured[e->stream]));
  DEMAND(!behind(m, e) || m->known[s][MODEL_LINK] >= m->exchange);
  if (!failed)
    follow(m->known[s], e->known);
  pthread_mutex_unlock(&m->lock);
  return failed;
}

static uint64_t capturing(void *self, uint64_t handle) {
  model *m = self;
  pthread_mutex_lock(&m->lock);
  uint64_t capture = fails(m) ? UINT64_MAX : m->captured[number_of(handle)];
  pthread_mutex_unlock(&m->lock);
  linger();
  return capture;
}

static int room(void *self, uint64_t *bytes) {
  model *m = self;
  return m->host.room(m->host.self, bytes);
}

static void ignore(void *self) { (void)self; }

model *model_open(const model_options *options, sp_prim *prim) {
  model *m = calloc(1, sizeof *m);
  const sp_host_options host = {.base = options->base, .capacity = options->capacity, .granularity = options->granularity, .partial = 1};
  DEMAND(m != NULL && sp_host_open(&host, &m->host));
  m->options = *options;
  m->seed = options->base;
  m->units = take_units(span_of(options));
  m->touched = calloc(span_of(options) / CHUNK, 1);
  DEMAND(m->units != NULL && m->touched != NULL);
  pthread_mutex_init(&m->lock, NULL);
  *prim = (sp_prim){
      .self = m,
      .granularity = options->granularity,
      .partial = 1,
      .span = m->host.span,
      .extend = extend,
      .carry = carry,
      .give_back = give_back,
      .synchronize = synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .stream_wait = stream_wait,
      .event_record_whole = options->known_only ? NULL : event_record_whole,
      .event_done = event_done,
      .capturing = capturing,
      .room = room,
      .close = ignore,
  };
  return m;
}

long model_carried(const model *m) { return m->carried; }

void model_close(model *m) {
  DEMAND(m->events == 0 && (m->memory == 0 || m->options.failures > 0));
  sp_host_drop(&m->host);
  pthread_mutex_destroy(&m->lock);
  leave_units(m);
  free(m->touched);
  free(m);
}

uint64_t model_handle(int stream) { return (uint64_t)stream; }

void model_begin(model *m, int stream, uint64_t address, uint64_t size) {
  unit *u = units_at(m, address, size);
  vector known;
  pthread_mutex_lock(&m->lock);
  m->met |= UINT32_C(1) << stream;
  m->known[stream][stream]++;
  memcpy(known, m->known[stream], sizeof known);
  follow(known, m->done); /* what the host has seen done comes before all that it enqueues now */
  pthread_mutex_unlock(&m->lock);
  unit last; /* that was looked at: neighbours mostly had the same owner */
  for (uint64_t i = 0; i < size / MODEL_UNIT; i++) {
    if (i == 0 || memcmp(&u[i], &last, sizeof last) != 0) {
      last = u[i];
      DEMAND(last.there && !last.owned);
      for (int s = 0; s < MODEL_ALL; s++)
        DEMAND(last.used[s] <= known[s] && (last.stream == stream || last.given[s] <= known[s]));
    }
    u[i].owned = 1; /* each unit is written, so that a sanitizer sees two owners */
    u[i].stream = (int16_t)stream;
  }
}

void model_meet(model *m, int stream) {
  pthread_mutex_lock(&m->lock);
  m->met |= UINT32_C(1) << stream;
  pthread_mutex_unlock(&m->lock);
}

void model_work(model *m, int stream) {
  pthread_mutex_lock(&m->lock);
  if (stream >= MODEL_STREAMS || m->captured[stream] == 0)
    m->known[stream][stream]++;
  pthread_mutex_unlock(&m->lock);
}

void model_follow(model *m, int stream, int own) {
  pthread_mutex_lock(&m->lock);
  if (m->captured[stream] == 0)
    follow(m->known[stream], m->known[own]);
  pthread_mutex_unlock(&m->lock);
}

void model_end(model *m, uint64_t streams, uint64_t address, uint64_t size) {
  unit *u = units_at(m, address, size);
  vector now = {0}, given = {0};
  pthread_mutex_lock(&m->lock);
  for (int s = 0; s < MODEL_STREAMS; s++)
    if (streams >> s & 1)
      now[s] = ++m->known[s][s];
  for (int s = 0; s < MODEL_ALL; s++)
    if (!m->options.known_only || m->met >> s & 1)
      given[s] = m->known[s][s];
  pthread_mutex_unlock(&m->lock);
  unit last, left; /* the last one that was looked at, and what became of it */
  for (uint64_t i = 0; i < size / MODEL_UNIT; i++) {
    if (i == 0 || memcmp(&u[i], &last, sizeof last) != 0) {
      last = left = u[i];
      DEMAND(last.there && last.owned);
      follow(left.used, now);
      memcpy(left.given, given, sizeof given);
    }
    u[i] = left;
    u[i].owned = 0;
  }
}

void model_capture(model *m, int stream, int captured) {
  pthread_mutex_lock(&m->lock);
  m->captured[stream] = captured ? ++m->captures : 0;
  pthread_mutex_unlock(&m->lock);
}

void model_exchange(model *m, int begins) {
  pthread_mutex_lock(&m->lock);
  m->exchange = begins ? ++m->known[MODEL_LINK][MODEL_LINK] : 0;
  pthread_mutex_unlock(&m->lock);
}

void model_hold(model *m, int held) { atomic_fetch_add(&m->held, held ? 1 : -1); }
