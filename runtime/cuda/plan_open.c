/* plan_open.c: reads a plan: the header and the section table of the file, then
 * the checks of its records. docs/planfile.md is the authority. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan.h"
#include "plan_check.h"
#include "plan_crc64.h"
#include "plan_format.h"
#include "sizes.h"

static const uint8_t magic[8] = {0x89, 'S', 'T', 'P', 'L', 'A', 'N', '\n'};

/* The header: bytes, and where its fields begin. */
enum { HEADER_BYTES = 32, VERSION_AT = 8, SECTIONS_AT = 12, LENGTH_AT = 16, CHECKSUM_AT = 24 };

/* An entry of the section table: bytes, and where its fields begin. */
enum { ENTRY_BYTES = 32, KIND_AT = 0, DEVICE_AT = 4, OFFSET_AT = 8, BYTES_AT = 16, COUNT_AT = 24 };

/* Devices of a file, as docs/planfile.md bounds them. */
enum { MAX_DEVICES = 1 << 16 };

/* Bytes: sections start at multiples of it. */
enum { SECTION_ALIGNMENT = 8 };

/* A kind of section, as the file numbers it, and the bytes of one of its records. */
typedef struct {
  uint32_t kind;
  uint64_t record_bytes;
} section;

static const section producer_section = {1, 1};

static const section device_sections[SP_DEVICE_SECTIONS] = {
    [SP_SECTION_DEVICE] = {2, SP_DEVICE_BYTES},
    [SP_SECTION_STREAMS] = {3, SP_STREAM_BYTES},
    [SP_SECTION_SLOTS] = {4, SP_SLOT_BYTES},
    [SP_SECTION_WAITS] = {5, SP_WAIT_BYTES},
    [SP_SECTION_PHASES] = {6, SP_PHASE_BYTES},
    [SP_SECTION_PASSES] = {7, SP_PASS_BYTES},
    [SP_SECTION_PRESENCE] = {8, SP_WORD_BYTES},
    [SP_SECTION_WITNESS] = {11, SP_INDEX_BYTES},
};

static uint64_t padded(uint64_t n) { return sp_round_up(n, SECTION_ALIGNMENT); }

/* check_header is the class of the error and the rule that a file breaks as a
 * whole, or NULL. */
static const char *check_header(const uint8_t *data, uint64_t length) {
  if (length == 0 || memcmp(data, magic, length < sizeof magic ? length : sizeof magic) != 0)
    return length == 0 ? "truncated: the file is empty" : "bad-magic: this is no plan";
  if (length >= SECTIONS_AT && sp_le32(data + VERSION_AT) > SP_VERSION_SHARES)
    return "newer-version: a plan of a newer format; upgrade stplan";
  if (length >= SECTIONS_AT && sp_le32(data + VERSION_AT) < SP_VERSION)
    return "bad-version: expected 1 or 2";
  if (length < HEADER_BYTES)
    return "truncated: the file ends in its header";
  uint64_t stored = sp_le64(data + LENGTH_AT);
  if (length != stored)
    return length < stored ? "truncated: the file is shorter than it says" : "trailing-data: the file is longer than it says";
  static const uint8_t zero[8];
  uint64_t sum = sp_crc64(0, data, CHECKSUM_AT);
  sum = sp_crc64(sum, zero, sizeof zero);
  sum = sp_crc64(sum, data + HEADER_BYTES, length - HEADER_BYTES);
  return sum == sp_le64(data + CHECKSUM_AT) ? NULL : "checksum: the file is damaged";
}

/* check_entry checks entry i of the section table. Its section has to start at
 * byte `at` of the file; *count is the number of its records. The answer is the
 * broken rule, or NULL. */
static const char *check_entry(const uint8_t *data, uint64_t length, uint32_t i, uint64_t at, uint64_t *count) {
  const uint8_t *e = data + HEADER_BYTES + (uint64_t)i * ENTRY_BYTES;
  section s = i == 0 ? producer_section : device_sections[(i - 1) % SP_DEVICE_SECTIONS];
  uint32_t device = i == 0 ? UINT32_MAX : (i - 1) / SP_DEVICE_SECTIONS;
  *count = sp_le64(e + COUNT_AT);
  if (sp_le32(e + KIND_AT) != s.kind || sp_le32(e + DEVICE_AT) != device)
    return "a section of another kind or device than expected";
  if (sp_le64(e + OFFSET_AT) != at)
    return "a section that does not follow its predecessor";
  if (*count > (length - at) / s.record_bytes)
    return "more records than fit into the file";
  if (sp_le64(e + BYTES_AT) != *count * s.record_bytes)
    return "a section whose length is not that of its records";
  if (s.kind == device_sections[SP_SECTION_DEVICE].kind && *count != 1)
    return "a device section without exactly one record";
  uint64_t end = at + *count * s.record_bytes;
  if (padded(end) > length)
    return "padding beyond the end of the file";
  for (uint64_t p = end; p < padded(end); p++)
    if (data[p] != 0)
      return "padding that is not zero";
  return NULL;
}

/* read_device reads the fields of a device record; docs/planfile.md has their bytes. */
static void read_device(sp_plan_device *d, const uint8_t *p) {
  d->ordinal = sp_le32(p);
  d->rank = (int32_t)sp_le32(p + 4);
  d->mode = sp_le32(p + 8);
  d->end = sp_le32(p + 12) & 0xffff;
  d->advice = sp_le32(p + 12) >> 16;
  d->events = sp_le64(p + 48);
  d->alignment = sp_le64(p + 56);
  d->arena_bytes = sp_le64(p + 64);
  d->peak_allocated = sp_le64(p + 72);
  d->peak_active = sp_le64(p + 80);
  d->recorded_peak_reserved = sp_le64(p + 88);
  d->iterations = sp_le32(p + 96);
  d->bound_kind = sp_le32(p + 100);
  d->steady_start = sp_le64(p + 104);
  d->lower_bound = sp_le64(p + 112);
  d->bound_at = sp_le64(p + 120);
  d->gap = sp_le64(p + 128);
  d->steady_end = sp_le64(p + 136);
  d->stray_bytes = sp_le64(p + 144);
}

/* place notes where a section of a device lies, and how many records it has. */
static void place(sp_plan_device *d, sp_section which, const uint8_t *at, uint64_t count) {
  switch (which) {
  case SP_SECTION_DEVICE: read_device(d, at); break;
  case SP_SECTION_STREAMS: d->streams = at, d->stream_count = count; break;
  case SP_SECTION_SLOTS: d->slots = at, d->slot_count = count; break;
  case SP_SECTION_WAITS: d->waits = at, d->wait_count = count; break;
  case SP_SECTION_PHASES: d->phases = at, d->phase_count = count; break;
  case SP_SECTION_PASSES: d->passes = at, d->pass_count = count; break;
  case SP_SECTION_PRESENCE: d->presence = at, d->presence_count = count; break;
  case SP_SECTION_WITNESS: d->witness = at, d->witness_count = count; break;
  }
}

/* read_table finds the sections of a file whose header is right. The answer is
 * the broken rule, or NULL. */
static const char *read_table(stplan_plan *plan, uint64_t *producer_bytes) {
  const uint8_t *data = plan->data;
  uint64_t length = plan->length;
  uint32_t sections = sp_le32(data + SECTIONS_AT);
  if (sections < 1 + SP_DEVICE_SECTIONS || (sections - 1) % SP_DEVICE_SECTIONS != 0 || (sections - 1) / SP_DEVICE_SECTIONS > MAX_DEVICES)
    return "a number of sections that no devices have";
  if (sections > (length - HEADER_BYTES) / ENTRY_BYTES)
    return "a section table that is longer than the file";
  plan->device_count = (sections - 1) / SP_DEVICE_SECTIONS;
  plan->devices = calloc(plan->device_count, sizeof *plan->devices);
  if (plan->devices == NULL)
    return "no memory";
  uint64_t at = HEADER_BYTES + (uint64_t)sections * ENTRY_BYTES, count;
  for (uint32_t i = 0; i < sections; i++) {
    const char *problem = check_entry(data, length, i, at, &count);
    if (problem != NULL)
      return problem;
    if (i == 0)
      *producer_bytes = count;
    else
      place(&plan->devices[(i - 1) / SP_DEVICE_SECTIONS], (sp_section)((i - 1) % SP_DEVICE_SECTIONS), data + at, count);
    at = padded(at + sp_le64(data + HEADER_BYTES + (uint64_t)i * ENTRY_BYTES + BYTES_AT));
  }
  return at == length ? NULL : "a file that goes on after the last section";
}

/* check writes the first rule that the file breaks into error, and answers 1 if
 * there is none. */
static int check(stplan_plan *plan, char *error, size_t size) {
  const char *problem = check_header(plan->data, plan->length);
  if (problem != NULL) {
    snprintf(error, size, "%s", problem);
    return 0;
  }
  uint64_t producer_bytes = 0;
  problem = read_table(plan, &producer_bytes);
  if (problem != NULL) {
    snprintf(error, size, "structure: section table: %s", problem);
    return 0;
  }
  for (uint32_t i = 0; i < plan->device_count; i++)
    plan->devices[i].checksum = sp_le64(plan->data + CHECKSUM_AT);
  uint64_t first = HEADER_BYTES + (uint64_t)sp_le32(plan->data + SECTIONS_AT) * ENTRY_BYTES;
  sp_fault f = sp_plan_check_records(plan, sp_le32(plan->data + VERSION_AT), plan->data + first, producer_bytes);
  if (f.rule != NULL)
    snprintf(error, size, "structure: %s %llu: %s", f.record, (unsigned long long)f.index, f.rule);
  return f.rule == NULL;
}

stplan_status stplan_plan_parse(const void *data, size_t length, stplan_plan **plan, char *error, size_t size) {
  *plan = NULL;
  stplan_plan *p = calloc(1, sizeof *p);
  if (p == NULL) {
    snprintf(error, size, "no memory");
    return STPLAN_FAILED;
  }
  p->data = data;
  p->length = length;
  if (!check(p, error, size)) {
    stplan_plan_close(p);
    return STPLAN_BAD_PLAN;
  }
  *plan = p;
  return STPLAN_OK;
}

/* read_all reads *length bytes of a file into data. If the file does not begin
 * as a plan does, it stops there and makes *length what has been read: a user
 * who names a large file by mistake need not wait for all of it. 0, or the
 * error number; EIO if the file became shorter meanwhile. */
static int read_all(int file, uint8_t *data, size_t *length) {
  for (size_t at = 0; at < *length;) {
    ssize_t got = read(file, data + at, at < sizeof magic && *length > sizeof magic ? sizeof magic - at : *length - at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? errno : EIO;
    at += (size_t)got;
    if (at == sizeof magic && memcmp(data, magic, sizeof magic) != 0)
      *length = at;
  }
  return 0;
}

stplan_status stplan_plan_open(const char *path, stplan_plan **plan, char *error, size_t size) {
  *plan = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    snprintf(error, size, "cannot read: %s", file < 0 ? strerror(errno) : "expected a file");
    if (file >= 0)
      close(file);
    return STPLAN_FAILED;
  }
  size_t length = (size_t)info.st_size;
  uint8_t *data = malloc(length > 0 ? length : 1);
  int failed = data == NULL ? ENOMEM : read_all(file, data, &length);
  close(file);
  if (failed) {
    snprintf(error, size, "cannot read: %s", strerror(failed));
    free(data);
    return STPLAN_FAILED;
  }
  stplan_status status = stplan_plan_parse(data, length, plan, error, size);
  if (status == STPLAN_OK)
    (*plan)->own = data;
  else
    free(data);
  return status;
}

void stplan_plan_close(stplan_plan *plan) {
  if (plan == NULL)
    return;
  free(plan->own);
  free(plan->devices);
  free(plan);
}
