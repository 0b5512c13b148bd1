/* plan_check.c: the rules of docs/planfile.md about the producer, devices,
 * streams, phases and witnesses. */
#include "plan_check.h"

#include <stdlib.h>

#include "plan_check_slots.h"
#include "plan_format.h"

/* Limits that docs/planfile.md sets. */
enum {
  MAX_PRODUCER = 255,      /* bytes of text */
  MAX_STREAMS = 1 << 16,   /* of a device */
  MAX_PHASES = 256,        /* of a device */
  MIN_ALIGNMENT = 512,     /* bytes */
  MAX_ALIGNMENT = 1 << 30, /* bytes */
  MAX_WITNESS = 24         /* slots of a witness */
};

/* Kinds of lower bound. */
enum { BOUND_LOAD = 1, BOUND_WITNESS = 2, BOUND_APART = 3 };

/* rune decodes the UTF-8 character that begins at p, of which n bytes may be read,
 * into *c. The answer is its length in bytes, 0 if there is no valid one. */
static uint64_t rune(const uint8_t *p, uint64_t n, uint32_t *c) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  uint64_t length = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > n)
    return 0;
  *c = length == 1 ? p[0] : p[0] & (0x7fu >> length);
  for (uint64_t i = 1; i < length; i++) {
    if (p[i] >> 6 != 2)
      return 0;
    *c = *c << 6 | (p[i] & 0x3f);
  }
  int surrogate = *c >= 0xd800 && *c < 0xe000;
  return *c < least[length] || *c > 0x10ffff || surrogate ? 0 : length;
}

static sp_fault check_producer(const uint8_t *p, uint64_t n) {
  if (n == 0 || n > MAX_PRODUCER)
    return SP_FAULT("producer", 0, "not of 1 to 255 bytes");
  for (uint64_t i = 0; i < n;) {
    uint32_t c = 0;
    uint64_t length = rune(p + i, n - i, &c);
    if (length == 0)
      return SP_FAULT("producer", 0, "is not UTF-8");
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
      return SP_FAULT("producer", 0, "has a control character");
    i += length;
  }
  return SP_NO_FAULT;
}

/* identity is the rule that the device's kind and number break, or NULL. */
static const char *identity(const stplan_plan *plan, uint32_t i) {
  const sp_plan_device *d = &plan->devices[i];
  if (i > 0 && d->ordinal <= d[-1].ordinal)
    return "devices that do not ascend";
  if (d->ordinal > INT32_MAX)
    return "an ordinal above 2^31 - 1";
  if (i > 0 && d->rank != d[-1].rank)
    return "ranks that differ";
  if (d->rank < -1)
    return "a rank below -1";
  if (d->mode != SP_MODE_RECORDED && d->mode != SP_MODE_PERIODIC)
    return "an unknown mode";
  if (d->end != SP_END_REQUESTED && d->end != SP_END_COMPLETED)
    return "an unknown end";
  if (d->advice > SP_ADVICE_POOL)
    return "an unknown advice";
  return d->bound_kind >= BOUND_LOAD && d->bound_kind <= BOUND_APART ? NULL : "an unknown kind of bound";
}

/* check_witness checks the slots that a lower bound of kind witness lists;
 * other kinds have none. */
static sp_fault check_witness(const sp_plan_device *d) {
  if (d->bound_kind != BOUND_WITNESS)
    return d->witness_count == 0 ? SP_NO_FAULT : SP_FAULT("witness", 0, "of a bound of another kind");
  if (d->mode != SP_MODE_RECORDED || d->bound_at != 0)
    return SP_FAULT("witness", 0, "in mode periodic, or with a time");
  if (d->witness_count == 0 || d->witness_count > MAX_WITNESS)
    return SP_FAULT("witness", 0, "not of 1 to 24 slots");
  for (uint64_t i = 0; i < d->witness_count; i++) {
    uint32_t slot = sp_le32(d->witness + i * SP_INDEX_BYTES);
    if (slot >= d->slot_count || (i > 0 && slot <= sp_le32(d->witness + (i - 1) * SP_INDEX_BYTES)))
      return SP_FAULT("witness", i, "not a slot after the one before");
  }
  return SP_NO_FAULT;
}

/* numbers is the rule that the fields of the device record break, or NULL. */
static const char *numbers(const sp_plan_device *d) {
  if (d->events > SP_MAX_NUMBER || d->arena_bytes > SP_MAX_NUMBER || d->peak_allocated > SP_MAX_NUMBER ||
      d->peak_active > SP_MAX_NUMBER || d->recorded_peak_reserved > SP_MAX_NUMBER || d->stray_bytes > SP_MAX_NUMBER)
    return "a number above 2^62";
  if (d->alignment < MIN_ALIGNMENT || d->alignment > MAX_ALIGNMENT || (d->alignment & (d->alignment - 1)) != 0)
    return "an alignment that is no power of two from 512 to 2^30";
  if (d->arena_bytes % d->alignment != 0)
    return "an arena that is no multiple of the alignment";
  if (d->steady_start > d->events)
    return "a steady start after the last event";
  if (d->mode == SP_MODE_RECORDED && (d->steady_end != 0 || d->stray_bytes != 0))
    return "a steady end or stray bytes in mode recorded";
  if (d->mode == SP_MODE_PERIODIC && (d->steady_end <= d->steady_start || d->steady_end > d->events))
    return "a steady end that is not after the steady start and within the events";
  if (d->lower_bound > d->arena_bytes)
    return "a lower bound above the arena";
  if (d->mode == SP_MODE_RECORDED && d->bound_at > d->events)
    return "a bound after the last event";
  return d->gap == d->arena_bytes - d->lower_bound ? NULL : "a gap that is not the arena less the lower bound";
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static sp_fault check_streams(const sp_plan_device *d) {
  if (d->stream_count > MAX_STREAMS)
    return SP_FAULT("stream", MAX_STREAMS, "is one too many");
  uint64_t n = d->stream_count, *sorted = malloc((n + 1) * sizeof *sorted);
  if (sorted == NULL)
    return SP_FAULT("stream", 0, "no memory");
  for (uint64_t i = 0; i < n; i++)
    sorted[i] = sp_plan_stream(d, i);
  qsort(sorted, n, sizeof *sorted, compare);
  sp_fault f = SP_NO_FAULT;
  for (uint64_t i = 1; i < n; i++)
    if (sorted[i] == sorted[i - 1])
      f = SP_FAULT("stream", i, "in the order of handles equals its predecessor");
  free(sorted);
  return f;
}

/* phase is the rule that phase i breaks by itself, or NULL. Its slots have to
 * start at slot `next`. */
static const char *phase(const sp_plan_device *d, uint64_t i, const sp_phase *p, uint64_t next) {
  if (p->kind != (i == 0 ? SP_PROLOGUE : SP_BODY) && (i < 2 || p->kind != SP_INTERLUDE))
    return "of the wrong kind: expected the prologue first, then a body, then bodies and interludes";
  if (i == 0 ? p->occurrences != 1 : p->occurrences == 0)
    return "with an impossible number of occurrences";
  if (p->length == 0 || (i == 0 && p->length != d->steady_start))
    return "with an impossible length";
  if (p->first_slot != next)
    return "whose slots do not follow those before";
  if (p->slots > d->slot_count - next)
    return "with more slots than the device has";
  if (i > 0 && p->length > p->slots)
    return "longer than its slots";
  if (p->makespan > d->arena_bytes || p->makespan % d->alignment != 0)
    return "with a makespan that is no multiple of the alignment within the arena";
  if (p->lower_bound > p->makespan)
    return "with a lower bound above its makespan";
  return p->bound_at > p->length ? "with a bound after its length" : NULL;
}

static sp_fault check_phases(const sp_plan_device *d) {
  if (d->mode == SP_MODE_RECORDED)
    return d->phase_count == 0 ? SP_NO_FAULT : SP_FAULT("phase", 0, "in mode recorded");
  if (d->phase_count < 2 || d->phase_count > MAX_PHASES)
    return SP_FAULT("phase", d->phase_count, "expected 2 to 256");
  uint64_t next = 0, time = 0;
  for (uint64_t i = 0; i < d->phase_count; i++) {
    sp_phase p = sp_plan_phase(d, i);
    const char *problem = phase(d, i, &p, next);
    if (problem != NULL)
      return SP_FAULT("phase", i, problem);
    next += p.slots;
    time += p.length;
  }
  if (next != d->slot_count)
    return SP_FAULT("phase", d->phase_count - 1, "slots of the device beyond the last");
  return d->bound_at > time ? SP_FAULT("phase", d->phase_count - 1, "a bound after the last") : SP_NO_FAULT;
}

/* The order of the rules counts: later ones rely on earlier ones. */
static sp_fault check_device(const stplan_plan *plan, uint32_t i) {
  const sp_plan_device *d = &plan->devices[i];
  const char *problem = identity(plan, i);
  if (problem == NULL)
    problem = numbers(d);
  if (problem != NULL)
    return SP_FAULT("device", i, problem);
  if (d->slot_count > UINT32_MAX || d->wait_count > UINT32_MAX || d->pass_count > UINT32_MAX)
    return SP_FAULT("device", i, "more than 2^32 - 1 records of a kind");
  sp_fault (*const rules[])(const sp_plan_device *) = {check_streams,  check_phases,    sp_check_slots, sp_check_places,
                                                       sp_check_cells, sp_check_passes, sp_check_waits, check_witness};
  sp_fault f = SP_NO_FAULT;
  for (size_t k = 0; f.rule == NULL && k < sizeof rules / sizeof *rules; k++)
    f = rules[k](d);
  return f;
}

/* check_version demands that the file has the version that its records need,
 * since a plan has one byte string only. */
static sp_fault check_version(const stplan_plan *plan, uint32_t version) {
  int shares = 0;
  for (uint32_t i = 0; !shares && i < plan->device_count; i++)
    for (uint64_t k = 0; !shares && k < plan->devices[i].slot_count; k++)
      shares = (sp_plan_slot(&plan->devices[i], k).flags & SP_SLOT_SHARES) != 0;
  if (shares)
    return version == SP_VERSION_SHARES ? SP_NO_FAULT : SP_FAULT("version", version, "of a plan in which a slot shares its place, expected 2");
  return version == SP_VERSION ? SP_NO_FAULT : SP_FAULT("version", version, "of a plan in which no slot shares its place, expected 1");
}

sp_fault sp_plan_check_records(const stplan_plan *plan, uint32_t version, const uint8_t *producer, uint64_t length) {
  sp_fault f = check_producer(producer, length);
  for (uint32_t i = 0; f.rule == NULL && i < plan->device_count; i++)
    f = check_device(plan, i);
  return f.rule == NULL ? check_version(plan, version) : f;
}
