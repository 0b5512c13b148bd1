/* history.h: what a device object was asked for, one record after another, in a few bytes
 * each. docs/history.md is the authority for the bytes. It knows neither the device object
 * nor its lock: the caller orders the calls. Only sp_history_room takes memory of the host. */
#ifndef STPLAN_HISTORY_H
#define STPLAN_HISTORY_H

#include <stdint.h>

/* Bytes of records in a chunk. About 20,000 records: a training step fills a few. */
enum { SP_HISTORY_CHUNK = 64 << 10 };

/* Bytes. The longest record has 16, and this many have to be left before a request
 * begins, so that 256 threads that are between two of their locks have room. */
enum { SP_HISTORY_RECORD = 16, SP_HISTORY_RESERVE = 256 * SP_HISTORY_RECORD };

typedef struct sp_history_chunk {
  struct sp_history_chunk *next;
  uint64_t used;
  uint8_t bytes[SP_HISTORY_CHUNK];
} sp_history_chunk;

typedef struct {
  sp_history_chunk *first, *last; /* with records */
  sp_history_chunk *spare;        /* the next one, empty; NULL if there is none */
  uint64_t chunks, most;          /* how many there are with the spare, and may be */
  uint64_t length;                /* bytes of all records */
  uint64_t records, allocations;
  uint64_t exchanges; /* that have begun since the history did */
  uint32_t stream; /* of the last allocation */
  int failed;      /* a request has run out of memory since the last allocation */
  int full;        /* nothing is added any more */
} sp_history;

/* sp_history_close frees all chunks. */
void sp_history_close(sp_history *h);

/* sp_history_short says whether the history needs a chunk before the next request.
 * sp_history_chunk_make makes one, or returns NULL without host memory;
 * sp_history_add gives it to the history, NULL too: the history is full then. */
int sp_history_short(const sp_history *h);
sp_history_chunk *sp_history_chunk_make(void);
void sp_history_add(sp_history *h, sp_history_chunk *chunk);

/* sp_history_alloc notes an allocation of `bytes`, as requested, and returns its number,
 * from 1; 0 if the history is full. Streams are indices. */
uint32_t sp_history_alloc(sp_history *h, uint64_t bytes, uint32_t stream);

/* sp_history_failed notes that a request for `bytes` got no memory, and `had`, the bytes that the process could
 * have in all. */
void sp_history_failed(sp_history *h, uint64_t bytes, uint32_t stream, uint64_t had);

/* sp_history_free notes that the allocation with this number was freed, and sp_history_use
 * that another stream uses it. A number of 0 is none. */
void sp_history_free(sp_history *h, uint32_t number);
void sp_history_use(sp_history *h, uint32_t number, uint32_t stream);

/* sp_history_exchange notes that an exchange begins. They are numbered from 1 in that order.
 * sp_history_await notes that a stream waits for the exchange with this number. */
void sp_history_exchange(sp_history *h);
void sp_history_await(sp_history *h, uint64_t number, uint32_t stream);

/* sp_history_mark notes a mark: 0 for stplan_mark, N for a step of optimizer N. */
void sp_history_mark(sp_history *h, uint32_t mark);

#endif
