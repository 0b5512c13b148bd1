#include "history.h"

#include <stdlib.h>
#include <string.h>

#include "sizes.h"

/* The lowest three bits of a record's first number say what it is. */
enum { BYTES, UNITS, BYTES_ON, UNITS_ON, FREED, USED, MARKED, EXCHANGED, KIND_BITS = 3 };

/* The mark of a request that got no memory. Marks below it are those of stplan_mark and of steps. */
enum { FAILED = 256 };

void sp_history_close(sp_history *h) {
  sp_history_chunk *c = h->first;
  while (c != NULL) {
    sp_history_chunk *next = c->next;
    free(c);
    c = next;
  }
  free(h->spare);
  memset(h, 0, sizeof *h);
  h->full = 1;
}

/* room is how many bytes the chunk that is being filled has left. */
static uint64_t room(const sp_history *h) { return h->last == NULL ? 0 : SP_HISTORY_CHUNK - h->last->used; }

int sp_history_short(const sp_history *h) {
  return h->spare == NULL && !h->full && h->chunks < h->most && room(h) < SP_HISTORY_RESERVE;
}

/* Its pages are touched here, since records are written with a lock held. */
sp_history_chunk *sp_history_chunk_make(void) {
  sp_history_chunk *c = malloc(sizeof *c);
  if (c != NULL)
    memset(c, 0, sizeof *c);
  return c;
}

void sp_history_add(sp_history *h, sp_history_chunk *chunk) {
  if (chunk == NULL) {
    h->full = 1;
  } else if (sp_history_short(h)) {
    h->spare = chunk;
    h->chunks++;
  } else { /* another thread has made one meanwhile */
    free(chunk);
  }
}

/* turn goes on to the spare chunk. 0 if there is none: the history is full. */
static int turn(sp_history *h) {
  if (h->spare == NULL) {
    h->full = 1;
    return 0;
  }
  if (h->last == NULL)
    h->first = h->spare;
  else
    h->last->next = h->spare;
  h->last = h->spare;
  h->spare = NULL;
  return 1;
}

/* begin is where the next record goes, or NULL if the history is full. */
static uint8_t *begin(sp_history *h) {
  if (h->full || (room(h) < SP_HISTORY_RECORD && !turn(h)))
    return NULL;
  return h->last->bytes + h->last->used;
}

/* put writes a number, seven bits to a byte and the lowest first, and returns what follows. */
static uint8_t *put(uint8_t *at, uint64_t n) {
  for (; n >= 0x80; n >>= 7)
    *at++ = (uint8_t)(n | 0x80);
  *at++ = (uint8_t)n;
  return at;
}

static void end(sp_history *h, const uint8_t *at) {
  uint64_t bytes = (uint64_t)(at - h->last->bytes) - h->last->used;
  h->last->used += bytes;
  h->length += bytes;
  h->records++;
}

uint32_t sp_history_alloc(sp_history *h, uint64_t bytes, uint32_t stream) {
  uint8_t *at = begin(h);
  if (at == NULL)
    return 0;
  int units = bytes % SP_ALIGNMENT == 0, elsewhere = stream != h->stream;
  uint64_t kind = units ? (elsewhere ? UNITS_ON : UNITS) : (elsewhere ? BYTES_ON : BYTES);
  at = put(at, (units ? bytes >> SP_ALIGNMENT_BITS : bytes) << KIND_BITS | kind);
  if (elsewhere)
    at = put(at, stream);
  h->stream = stream;
  h->failed = 0;
  end(h, at);
  return (uint32_t)++h->allocations;
}

void sp_history_failed(sp_history *h, uint64_t bytes, uint32_t stream, uint64_t had) {
  uint8_t *at = begin(h);
  if (at == NULL)
    return;
  h->failed = 1;
  at = put(at, FAILED << KIND_BITS | MARKED);
  end(h, put(put(put(at, bytes), stream), had >> SP_ALIGNMENT_BITS));
}

/* back is how many allocations there were after that of this number. */
static uint64_t back(const sp_history *h, uint32_t number) { return h->allocations - number; }

void sp_history_free(sp_history *h, uint32_t number) {
  uint8_t *at = number == 0 ? NULL : begin(h);
  if (at != NULL)
    end(h, put(at, back(h, number) << KIND_BITS | FREED));
}

void sp_history_use(sp_history *h, uint32_t number, uint32_t stream) {
  uint8_t *at = number == 0 ? NULL : begin(h);
  if (at != NULL)
    end(h, put(put(at, back(h, number) << KIND_BITS | USED), stream));
}

void sp_history_exchange(sp_history *h) {
  uint8_t *at = begin(h);
  if (at == NULL)
    return;
  end(h, put(at, EXCHANGED));
  h->exchanges++;
}

void sp_history_await(sp_history *h, uint64_t number, uint32_t stream) {
  uint8_t *at = begin(h);
  if (at != NULL)
    end(h, put(put(at, (h->exchanges - number + 1) << KIND_BITS | EXCHANGED), stream));
}

void sp_history_mark(sp_history *h, uint32_t mark) {
  uint8_t *at = begin(h);
  if (at != NULL)
    end(h, put(at, (uint64_t)mark << KIND_BITS | MARKED));
}
