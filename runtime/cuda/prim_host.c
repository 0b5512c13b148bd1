#include "prim_host.h"

#include <pthread.h>
#include <stdlib.h>

#include "sizes.h"

typedef struct {
  uint64_t number;
  uint64_t recorded; /* the recordings of any event by its own last one */
} host_event;

typedef struct {
  sp_host_options options;
  pthread_mutex_t lock; /* everything below */
  uint64_t next;        /* address of the next separate extent */
  int still;            /* stop_moving was called */
  uint64_t mapped[SP_HOST_REGIONS]; /* bytes in each range that memory can grow in */
  uint64_t end[SP_HOST_REGIONS], unit[SP_HOST_REGIONS]; /* of the room in each of these */
  uint64_t given, carried; /* bytes of memory; bytes that are at one more address each */
  uint64_t occupied; /* by another process */
  uint64_t events;
  uint64_t captured; /* the stream that is being captured, UINT64_MAX if none is */
  uint64_t captures; /* how many there have been; the last one's number */
  uint64_t recordings, lag; /* so far; how many later ones there are once an event is done */
  sp_host_entry *log; /* entries [taken, logged) of room */
  size_t taken, logged, room;
} host;

/* region is the index of the region that an address lies in. */
static uint64_t region(const host *h, uint64_t addr) { return (addr - h->options.base) / (SP_HOST_SPAN * h->options.capacity); }

/* whole says whether the bytes are whole granules of the room in region i. */
static int whole(const host *h, uint64_t i, uint64_t at, uint64_t bytes) {
  return at % h->unit[i] == 0 && sp_round_up(at + bytes, h->options.granularity) % h->unit[i] == 0;
}

/* place is the address for memory: `at`, if its region has memory and room, the
 * first region that has none, or the next separate extent if memory is not
 * virtual or does not move. 0 if there is none. Locked. */
static uint64_t place(host *h, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit) {
  uint64_t span = SP_HOST_SPAN * h->options.capacity, i = 0, least = h->options.granularity;
  if (!h->options.partial || (h->still && at == 0)) {
    /* Separate extents do not touch, so that nothing can rely on it. */
    at = at != 0 ? 0 : h->next;
    h->next += at == 0 ? 0 : bytes + least;
    return at;
  }
  if (at != 0) {
    i = region(h, at);
    if (i >= SP_HOST_REGIONS || h->mapped[i] == 0 || at > h->end[i] || bytes > h->end[i] - at || !whole(h, i, at, bytes))
      return 0;
  } else {
    while (i < SP_HOST_REGIONS && h->mapped[i] != 0)
      i++;
    uint64_t from = h->options.base + i * span, end = from + span - least;
    at = sp_round_up(from, unit);
    if (i == SP_HOST_REGIONS || at > end || sp_round_up(room, unit) > end - at)
      return 0;
    h->end[i] = at + sp_round_up(room, unit);
    h->unit[i] = unit;
  }
  h->mapped[i] += bytes;
  return at;
}

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  uint64_t found = bytes <= h->options.capacity - h->given - h->occupied ? place(h, at, bytes, room, unit) : 0;
  if (found != 0) {
    h->given += bytes;
    *addr = found;
  }
  pthread_mutex_unlock(&h->lock);
  return found == 0;
}

/* note adds to the log. Nonzero without host memory. Locked. */
static int note(host *h, sp_host_entry e) {
  if (!h->options.log)
    return 0;
  if (h->logged == h->room) {
    size_t room = h->room == 0 ? 256 : 2 * h->room;
    sp_host_entry *log = realloc(h->log, room * sizeof *log);
    if (log == NULL)
      return 1;
    h->log = log;
    h->room = room;
  }
  h->log[h->logged++] = e;
  return 0;
}

/* What is in the granules is not followed: addresses that memory has left are given back before any memory. */
static int carry(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans) {
  host *h = self;
  uint64_t old = 0;
  pthread_mutex_lock(&h->lock);
  int failed = region(h, at) >= SP_HOST_REGIONS;
  for (size_t i = 0; i < spans && !failed; i++) {
    uint64_t r = region(h, from[i].addr);
    failed = r >= SP_HOST_REGIONS || (h->unit[r] != h->unit[region(h, at)] && h->unit[r] != h->options.granularity) || !whole(h, r, from[i].addr, from[i].bytes) || from[i].bytes % h->unit[r] != 0;
    old += from[i].bytes;
  }
  failed = failed || old > bytes || bytes - old > h->options.capacity - h->given - h->occupied || place(h, at, bytes, 0, 0) == 0;
  for (size_t i = 0; i < spans && !failed; i++) {
    failed = note(h, (sp_host_entry){.kind = SP_HOST_CARRIED, .from = from[i].addr, .to = at, .bytes = from[i].bytes});
    at += from[i].bytes;
  }
  if (!failed) {
    h->given += bytes - old;
    h->carried += old;
  }
  pthread_mutex_unlock(&h->lock);
  return failed;
}

static int give_back(void *self, uint64_t addr, uint64_t bytes) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  int ours = addr >= h->options.base && bytes <= h->given + h->carried, grown = ours && h->options.partial && region(h, addr) < SP_HOST_REGIONS;
  ours = ours && (!grown || whole(h, region(h, addr), addr, bytes));
  if (ours) {
    uint64_t left = sp_least(bytes, h->carried);
    h->carried -= left;
    h->given -= bytes - left;
  }
  if (ours && grown)
    h->mapped[region(h, addr)] -= bytes;
  pthread_mutex_unlock(&h->lock);
  return !ours;
}

static void stop_moving(void *self) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  h->still = 1;
  pthread_mutex_unlock(&h->lock);
}

static int event_create(void *self, void **event) {
  host *h = self;
  host_event *e = calloc(1, sizeof *e);
  if (e == NULL)
    return 1;
  pthread_mutex_lock(&h->lock);
  e->number = h->events++;
  pthread_mutex_unlock(&h->lock);
  *event = e;
  return 0;
}

static void event_destroy(void *self, void *event) {
  (void)self;
  free(event);
}

/* noted adds to the log, with the lock. Nonzero without host memory. */
static int noted(void *self, sp_host_kind kind, uint64_t stream, const void *event) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  int failed = note(h, (sp_host_entry){.kind = kind, .stream = stream, .event = event == NULL ? 0 : ((const host_event *)event)->number});
  pthread_mutex_unlock(&h->lock);
  return failed;
}

/* recorded notes a recording of an event. */
static int recorded(host *h, sp_host_kind kind, uint64_t stream, host_event *e) {
  pthread_mutex_lock(&h->lock);
  e->recorded = ++h->recordings;
  pthread_mutex_unlock(&h->lock);
  return noted(h, kind, stream, e);
}

static int event_record(void *self, void *event, uint64_t stream) { return recorded(self, SP_HOST_RECORD, stream, event); }

/* As the driver does, it refuses for good if it is asked during a capture. */
static int event_record_whole(void *self, void *event) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  int captured = h->captured != UINT64_MAX;
  pthread_mutex_unlock(&h->lock);
  return captured ? SP_NEVER : recorded(h, SP_HOST_WHOLE, 0, event);
}

static int stream_wait(void *self, uint64_t stream, void *event) { return noted(self, SP_HOST_WAIT, stream, event); }

static int event_done(void *self, void *event) {
  host *h = self;
  const host_event *e = event;
  pthread_mutex_lock(&h->lock);
  int done = h->recordings - e->recorded >= h->lag;
  pthread_mutex_unlock(&h->lock);
  return done && noted(self, SP_HOST_DONE, 0, event) == 0;
}

static int synchronize(void *self) { return noted(self, SP_HOST_SETTLED, 0, NULL); }

void sp_host_lag(const sp_prim *prim, uint64_t recordings) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  h->lag = recordings;
  pthread_mutex_unlock(&h->lock);
}

size_t sp_host_take(const sp_prim *prim, sp_host_entry *entries, size_t most) {
  host *h = prim->self;
  size_t n = 0;
  pthread_mutex_lock(&h->lock);
  while (n < most && h->taken < h->logged)
    entries[n++] = h->log[h->taken++];
  if (h->taken == h->logged)
    h->taken = h->logged = 0;
  pthread_mutex_unlock(&h->lock);
  return n;
}

static uint64_t capturing(void *self, uint64_t stream) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  uint64_t capture = h->captured == stream ? h->captures : 0;
  pthread_mutex_unlock(&h->lock);
  return capture;
}

static void host_close(void *self) {
  host *h = self;
  pthread_mutex_destroy(&h->lock);
  free(h->log);
  free(h);
}

int sp_host_open(const sp_host_options *options, sp_prim *prim) {
  host *h = calloc(1, sizeof *h);
  if (h == NULL)
    return 0;
  h->options = *options;
  h->next = options->base + (options->partial ? SP_HOST_REGIONS * SP_HOST_SPAN * options->capacity : 0);
  h->captured = UINT64_MAX;
  pthread_mutex_init(&h->lock, NULL);
  *prim = (sp_prim){
      .self = h,
      .granularity = options->granularity,
      .partial = options->partial,
      .span = options->partial ? sp_round_down((SP_HOST_SPAN - 1) * options->capacity, options->granularity) : 0,
      .extend = extend,
      .carry = options->partial ? carry : NULL,
      .give_back = give_back,
      .stop_moving = options->partial ? stop_moving : NULL,
      .synchronize = synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .stream_wait = stream_wait,
      .event_record_whole = options->known_only ? NULL : event_record_whole,
      .event_done = event_done,
      .capturing = capturing,
      .close = host_close,
  };
  return 1;
}

void sp_host_capture(const sp_prim *prim, uint64_t stream) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  h->captured = stream;
  h->captures++;
  pthread_mutex_unlock(&h->lock);
}

void sp_host_occupy(const sp_prim *prim, uint64_t bytes) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  uint64_t left = h->options.capacity - h->given;
  h->occupied = bytes < left ? bytes : left;
  pthread_mutex_unlock(&h->lock);
}

void sp_host_drop(const sp_prim *prim) { host_close(prim->self); }
