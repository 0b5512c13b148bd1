/* history_file.h: writes histories to a file (docs/history.md). */
#ifndef STPLAN_HISTORY_FILE_H
#define STPLAN_HISTORY_FILE_H

#include <stddef.h>

#include "history.h"
#include "streams.h"

/* sp_history_part is the history of one device up to some record: `length` bytes of the
 * chunks from `first` to `last`. */
typedef struct {
  uint32_t ordinal, streams;
  int stopped;
  uint64_t length, records, allocations;
  const sp_history_chunk *first, *last;
  uint64_t last_used; /* bytes of the last chunk, which may be growing meanwhile */
  uint64_t handles[SP_STREAMS];
} sp_history_part;

/* sp_history_file_write writes a file under a temporary name, and gives it its own when it
 * is whole. Parts are in ascending order of their ordinals. rank is -1 if there is none.
 * Zero is success; otherwise no file is left. */
int sp_history_file_write(const char *path, int rank, const sp_history_part *parts, size_t count);

#endif
