#define _POSIX_C_SOURCE 200809L

#include "history_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan_crc64.h"
#include "sizes.h"

/* Offsets and lengths in bytes, of the header and of a device's record. */
enum { HEADER = 40, CHECKSUM_AT = 24, RECORD = 40, PADDING = 8 };
enum { VERSION = 3, STOPPED = 1 };

static const uint8_t magic[8] = {0x89, 'S', 'T', 'P', 'H', 'I', 'S', '\n'};

/* sink takes the bytes of a file one after another: it sums them up, and writes them if
 * there is a file. */
typedef struct {
  int file; /* -1: none */
  int failed;
  uint64_t sum;
} sink;

static void take(sink *s, const void *bytes, size_t length) {
  const uint8_t *at = bytes;
  if (s->file < 0)
    s->sum = sp_crc64(s->sum, at, length);
  while (s->file >= 0 && !s->failed && length > 0) {
    ssize_t n = write(s->file, at, length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      s->failed = 1;
      break;
    }
    at += n;
    length -= (size_t)n;
  }
}

/* number writes a little-endian number of `bytes` bytes. */
static void number(uint8_t *at, uint64_t n, int bytes) {
  for (int i = 0; i < bytes; i++)
    at[i] = (uint8_t)(n >> 8 * i);
}

static void take_record(sink *s, const sp_history_part *p) {
  uint8_t record[RECORD] = {0};
  number(record, p->ordinal, 4);
  number(record + 4, p->streams, 4);
  number(record + 8, p->length, 8);
  number(record + 16, p->records, 8);
  number(record + 24, p->allocations, 8);
  number(record + 32, p->stopped ? STOPPED : 0, 4);
  take(s, record, sizeof record);
}

static void take_part(sink *s, const sp_history_part *p) {
  static const uint8_t zeros[PADDING];
  uint8_t handle[8];
  for (uint32_t i = 0; i < p->streams; i++) {
    number(handle, p->handles[i], sizeof handle);
    take(s, handle, sizeof handle);
  }
  for (const sp_history_chunk *c = p->first; c != p->last; c = c->next)
    take(s, c->bytes, c->used);
  take(s, p->last->bytes, p->last_used);
  take(s, zeros, sp_round_up(p->length, PADDING) - p->length);
}

static void take_all(sink *s, const uint8_t header[HEADER], const sp_history_part *parts, size_t count) {
  take(s, header, HEADER);
  for (size_t i = 0; i < count; i++)
    take_record(s, &parts[i]);
  for (size_t i = 0; i < count; i++)
    take_part(s, &parts[i]);
}

static void make_header(uint8_t header[HEADER], int rank, const sp_history_part *parts, size_t count) {
  uint64_t length = HEADER + RECORD * count;
  for (size_t i = 0; i < count; i++)
    length += 8 * (uint64_t)parts[i].streams + sp_round_up(parts[i].length, PADDING);
  memset(header, 0, HEADER);
  memcpy(header, magic, sizeof magic);
  number(header + 8, VERSION, 4);
  number(header + 12, count, 4);
  number(header + 16, length, 8);
  number(header + 32, (uint64_t)(int64_t)rank, 4);
  sink sums = {.file = -1};
  take_all(&sums, header, parts, count);
  number(header + CHECKSUM_AT, sums.sum, 8);
}

int sp_history_file_write(const char *path, int rank, const sp_history_part *parts, size_t count) {
  char temporary[PATH_MAX];
  int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
  if (length < 0 || (size_t)length >= sizeof temporary)
    return 1;
  uint8_t header[HEADER];
  make_header(header, rank, parts, count);
  sink s = {.file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (s.file < 0)
    return 1;
  take_all(&s, header, parts, count);
  if (close(s.file) != 0 || s.failed || rename(temporary, path) != 0) {
    unlink(temporary);
    return 1;
  }
  return 0;
}
