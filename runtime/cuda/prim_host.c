#include "prim_host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sizes.h"

/* How often the host looks at an event, one time after another, until the exchanges that it is behind are over. */
enum { PATIENCE = 16 };

typedef struct {
  uint64_t number;
  uint64_t recorded; /* the recordings of any event by its own last one */
  uint64_t behind;   /* how many exchanges had begun by its last recording */
} host_event;

/* Addresses that memory can be at, and the bytes that have some: not 0. */
typedef struct {
  uint64_t at, end, unit, mapped;
} host_room;

typedef struct {
  sp_host_options options;
  pthread_mutex_t lock; /* everything below */
  uint64_t next;        /* address of the next separate extent */
  int still;            /* stop_moving was called */
  host_room *rooms; /* by address */
  size_t count, most; /* of these, and as many as there is host memory for */
  uint64_t given, carried; /* bytes of memory; bytes that are at one more address each */
  uint64_t occupied; /* by another process */
  uint64_t events;
  uint64_t captured; /* the stream that is being captured, UINT64_MAX if none is */
  uint64_t captures; /* how many there have been; the last one's number */
  uint64_t recordings, lag; /* so far; how many later ones there are once an event is done */
  uint64_t exchanges;       /* that have begun; the last one's number */
  uint64_t *under_way;      /* numbers of those that are not over, ascending */
  size_t ways, way_room;    /* how many, and as many as there is host memory for */
  const host_event *looked; /* the event that was looked at last, if nothing has been asked of the device since */
  int looks;                /* how often, one time after another */
  uint64_t misplaced;
  sp_host_entry *log; /* entries [taken, logged) of room */
  size_t taken, logged, room;
} host;

/* room_at is the room that an address lies in, or at whose end, or NULL. Locked. */
static host_room *room_at(const host *h, uint64_t addr) {
  size_t low = 0, high = h->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (h->rooms[middle].end < addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low < h->count && h->rooms[low].at <= addr ? &h->rooms[low] : NULL;
}

/* whole says whether the bytes are in the room, and whole granules of it. */
static int whole(const host *h, const host_room *r, uint64_t at, uint64_t bytes) {
  return bytes <= r->end - at && at % r->unit == 0 && sp_round_up(at + bytes, h->options.granularity) % r->unit == 0;
}

/* begin makes a room at the lowest addresses that it fits at. Rooms do not touch, so that nothing can rely on it.
 * NULL without addresses or host memory. Locked. */
static host_room *begin(host *h, uint64_t bytes, uint64_t unit) {
  uint64_t least = h->options.granularity, last = h->options.base + SP_HOST_ADDRESSES * h->options.capacity;
  if (h->count == h->most) {
    size_t most = h->most == 0 ? 16 : 2 * h->most;
    host_room *rooms = realloc(h->rooms, most * sizeof *rooms);
    if (rooms == NULL)
      return NULL;
    h->rooms = rooms;
    h->most = most;
  }
  size_t i = 0;
  uint64_t at = sp_round_up(h->options.base, unit);
  while (i < h->count && (h->rooms[i].at < at || bytes + least > h->rooms[i].at - at))
    at = sp_round_up(h->rooms[i++].end + least, unit);
  if (at > last || bytes > last - at)
    return NULL;
  memmove(&h->rooms[i + 1], &h->rooms[i], (h->count++ - i) * sizeof *h->rooms);
  h->rooms[i] = (host_room){.at = at, .end = at + bytes, .unit = unit};
  return &h->rooms[i];
}

/* place is the address for memory: `at`, if there is a room that has it, a new room's, or the next
 * separate extent if memory is not virtual or does not move. 0 if there is none. Locked. */
static uint64_t place(host *h, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit) {
  if (!h->options.partial || (h->still && at == 0)) {
    /* Separate extents do not touch either. */
    at = at != 0 ? 0 : h->next;
    h->next += at == 0 ? 0 : bytes + h->options.granularity;
    return at;
  }
  uint64_t most = SP_HOST_ADDRESSES * h->options.capacity;
  host_room *r = NULL;
  if (at != 0)
    r = room_at(h, at);
  else if (bytes <= room && room <= most && unit <= most)
    r = begin(h, sp_round_up(room, unit), unit);
  h->misplaced += r != NULL && at % r->unit != 0;
  if (r == NULL || (at != 0 && !whole(h, r, at, bytes)))
    return 0;
  r->mapped += bytes;
  return at != 0 ? at : r->at;
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
  const host_room *into = room_at(h, at);
  int failed = into == NULL;
  for (size_t i = 0; i < spans && !failed; i++) {
    const host_room *r = room_at(h, from[i].addr);
    failed = r == NULL || (r->unit != into->unit && r->unit != h->options.granularity) || !whole(h, r, from[i].addr, from[i].bytes) || from[i].bytes % r->unit != 0;
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
  host_room *r = h->options.partial ? room_at(h, addr) : NULL;
  int ours = addr >= h->options.base && bytes <= h->given + h->carried && (r == NULL || whole(h, r, addr, bytes));
  if (ours) {
    uint64_t left = sp_least(bytes, h->carried);
    h->carried -= left;
    h->given -= bytes - left;
  }
  if (ours && r != NULL && (r->mapped -= bytes) == 0)
    memmove(r, r + 1, (size_t)(&h->rooms[--h->count] - r) * sizeof *r);
  pthread_mutex_unlock(&h->lock);
  return !ours;
}

static int room(void *self, uint64_t *bytes) {
  host *h = self;
  pthread_mutex_lock(&h->lock);
  *bytes = h->options.capacity - h->given - h->occupied;
  pthread_mutex_unlock(&h->lock);
  return 0;
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
  h->looked = NULL;
  pthread_mutex_unlock(&h->lock);
  return failed;
}

/* recorded notes a recording of an event. */
static int recorded(host *h, sp_host_kind kind, uint64_t stream, host_event *e) {
  pthread_mutex_lock(&h->lock);
  e->recorded = ++h->recordings;
  e->behind = h->exchanges;
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

/* goes_on ends the exchanges up to a number. Locked. */
static void goes_on(host *h, uint64_t last) {
  size_t over = 0;
  while (over < h->ways && h->under_way[over] <= last)
    over++;
  h->ways -= over;
  memmove(h->under_way, h->under_way + over, h->ways * sizeof *h->under_way);
}

/* passed says whether the exchanges that an event is behind are over. Locked. */
static int passed(host *h, const host_event *e) {
  h->looks = h->looked == e ? h->looks + 1 : 0;
  h->looked = e;
  if (h->looks == PATIENCE)
    goes_on(h, e->behind);
  return h->ways == 0 || h->under_way[0] > e->behind;
}

static int event_done(void *self, void *event) {
  host *h = self;
  const host_event *e = event;
  pthread_mutex_lock(&h->lock);
  int done = h->recordings - e->recorded >= h->lag && passed(h, e);
  pthread_mutex_unlock(&h->lock);
  return done && noted(self, SP_HOST_DONE, 0, event) == 0;
}

static int synchronize(void *self) { return noted(self, SP_HOST_SETTLED, 0, NULL); }

uint64_t sp_host_exchange_begins(const sp_prim *prim) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  uint64_t number = ++h->exchanges;
  if (h->ways == h->way_room) {
    size_t room = h->way_room == 0 ? 16 : 2 * h->way_room;
    uint64_t *list = realloc(h->under_way, room * sizeof *list);
    if (list != NULL) {
      h->under_way = list;
      h->way_room = room;
    }
  }
  if (h->ways < h->way_room)
    h->under_way[h->ways++] = number;
  pthread_mutex_unlock(&h->lock);
  return number;
}

void sp_host_exchange_over(const sp_prim *prim, uint64_t exchange) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  size_t i = 0;
  while (i < h->ways && h->under_way[i] != exchange)
    i++;
  if (i < h->ways)
    memmove(&h->under_way[i], &h->under_way[i + 1], (--h->ways - i) * sizeof *h->under_way);
  pthread_mutex_unlock(&h->lock);
}

void sp_host_lag(const sp_prim *prim, uint64_t recordings) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  h->lag = recordings;
  pthread_mutex_unlock(&h->lock);
}

uint64_t sp_host_misplaced(const sp_prim *prim) {
  host *h = prim->self;
  pthread_mutex_lock(&h->lock);
  uint64_t n = h->misplaced;
  pthread_mutex_unlock(&h->lock);
  return n;
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
  free(h->rooms);
  free(h->under_way);
  free(h->log);
  free(h);
}

int sp_host_open(const sp_host_options *options, sp_prim *prim) {
  host *h = calloc(1, sizeof *h);
  if (h == NULL)
    return 0;
  h->options = *options;
  h->next = options->base + (options->partial ? SP_HOST_ADDRESSES * options->capacity + options->granularity : 0);
  h->captured = UINT64_MAX;
  pthread_mutex_init(&h->lock, NULL);
  *prim = (sp_prim){
      .self = h,
      .granularity = options->granularity,
      .partial = options->partial,
      .span = options->partial ? sp_round_down(SP_HOST_ROOM * options->capacity, options->granularity) : 0,
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
      .room = room,
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
