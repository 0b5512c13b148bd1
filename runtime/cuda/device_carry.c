#include "device_carry.h"

#include <stdlib.h>

#include "device_hold.h"
#include "device_wait.h"

/* Ranges that one call of the device carries. Idle memory is rarely in so many pieces; more than that are
 * given back and taken again. */
enum { SPANS = 256 };

/* After this many failures in a row, of calls that needed no new memory, the device is not asked again: it may
 * not allow memory at two addresses. */
enum { FAILURES = 3 };

/* sp_left is addresses that memory was carried from, and when they were used last. */
struct sp_left {
  struct sp_left *next;
  uint64_t addr, end, unit;
  sp_clock uses;
  int blocked; /* it could not be given back for the request that is under way */
};

/* may_carry says whether memory can be carried at present. If the device has refused memory, or just refused to
 * carry, what is to go elsewhere has to be given back first. Locked. */
static int may_carry(const stplan_device *d) {
  return d->prim.carry != NULL && !d->refused && !d->kept && d->carry.list == NULL && !d->carry.skip && d->carry.failed < FAILURES;
}

/* unit_at is the bytes of granules at an address where memory is about to be taken. Locked. */
static uint64_t unit_at(const stplan_device *d, uint64_t at) {
  const sp_range *r = sp_arena_holding(&d->arena, at);
  if (r == NULL)
    r = sp_arena_holding(&d->arena, at - 1); /* an extent grows there */
  return r == NULL ? 0 : sp_arena_unit(&d->arena, r);
}

/* take takes up to *most ranges of whole granules of `unit` from a list. While an exchange is under way, the stream
 * that asks for memory cannot always be ordered behind what used a range (streams.h): such ranges stay in the
 * list. Locked. */
static void take(stplan_device *d, sp_range **list, uint64_t unit, int *most) {
  sp_range **last = &d->carry.list;
  while (*last != NULL)
    last = &(*last)->chain;
  for (sp_range **r = list; *r != NULL && *most > 0;) {
    sp_range *taken = *r;
    if (sp_arena_unit(&d->arena, taken) != unit || taken->size % unit != 0 || !sp_streams_can(&d->streams, &taken->uses, d->carry.stream)) {
      r = &taken->chain;
      continue;
    }
    *r = taken->chain;
    taken->chain = NULL;
    *last = taken;
    last = &taken->chain;
    d->carry.bytes += taken->size;
    --*most;
  }
}

uint64_t sp_carry_take(stplan_device *d, sp_range **list, uint64_t at) {
  int most = SPANS / 2; /* each may be cut in two */
  if (*list == NULL || at == 0)
    return 0;
  sp_device_unlock(d);
  int held = !sp_hold_enter();
  if (!held)
    sp_hold_leave();
  sp_device_lock(d);
  sp_device_look(d);
  uint64_t unit = unit_at(d, at);
  if (held || unit == 0 || !may_carry(d))
    return 0;
  d->carry.unit = unit;
  take(d, list, unit, &most);
  if (unit > d->prim.granularity && !d->carry.whole)
    take(d, list, d->prim.granularity, &most);
  return d->carry.bytes;
}

uint64_t sp_carry_adds(const stplan_device *d, uint64_t bytes) { return bytes - sp_least(bytes, d->carry.bytes); }

/* next takes a range of up to `bytes` from those that are to be carried. NULL if there is none.
 * Locked; may let go of the lock. */
static sp_range *next(stplan_device *d, uint64_t bytes) {
  if (d->carry.list == NULL || !sp_device_nodes(d))
    return NULL;
  sp_range *r = d->carry.list;
  uint64_t size = sp_round_down(sp_least(bytes, r->size), sp_arena_unit(&d->arena, r));
  if (size == 0)
    return NULL;
  sp_range *part = size < r->size ? sp_arena_cut(&d->arena, r, size) : r;
  if (part == r)
    d->carry.list = r->chain;
  d->carry.bytes -= part->size;
  part->chain = NULL;
  return part;
}

/* put_back puts ranges that were not carried back at the head of those that are to be. Locked. */
static void put_back(stplan_device *d, sp_range *r) {
  while (r != NULL) {
    sp_range *after = r->chain;
    r->chain = d->carry.list;
    d->carry.list = r;
    d->carry.bytes += r->size;
    r = after;
  }
}

/* note_left makes a note of addresses. NULL without host memory. */
static struct sp_left *note_left(const stplan_device *d, const sp_range *r, struct sp_left *after) {
  struct sp_left *l = malloc(sizeof *l);
  if (l != NULL)
    *l = (struct sp_left){.next = after, .addr = r->addr, .end = r->addr + r->size, .unit = sp_arena_unit(&d->arena, r), .uses = r->uses};
  return l;
}

/* forget_left forgets so many of the notes, those that were made last. */
static void forget_left(stplan_device *d, size_t count) {
  for (; count > 0 && d->carry.left != NULL; count--) {
    struct sp_left *gone = d->carry.left;
    d->carry.left = gone->next;
    free(gone);
  }
}

/* gather chooses what is carried to `bytes` at an address, and makes a note of each. It returns how
 * many pieces that is. Locked; may let go of the lock. */
static size_t gather(stplan_device *d, uint64_t bytes, sp_span spans[SPANS], sp_range **used, sp_clock *uses) {
  size_t count = 0;
  sp_range *r;
  while (count < SPANS && bytes > 0 && (r = next(d, bytes)) != NULL) {
    struct sp_left *left = note_left(d, r, d->carry.left);
    if (left == NULL) {
      put_back(d, r);
      break;
    }
    r->chain = *used;
    *used = r;
    d->carry.left = left;
    spans[count++] = (sp_span){r->addr, r->size};
    bytes -= r->size;
    sp_clock_merge(uses, &r->uses);
  }
  return count;
}

/* total is the bytes of some pieces. */
static uint64_t total(const sp_span *spans, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++)
    bytes += spans[i].bytes;
  return bytes;
}

int sp_carry_extend(stplan_device *d, uint64_t at, uint64_t bytes, sp_clock *uses, uint64_t *added) {
  sp_span spans[SPANS];
  sp_range *used = NULL;
  *uses = (sp_clock){0};
  if (!sp_carry_clear(d, at, at + bytes))
    return 0;
  if (d->carry.list != NULL && unit_at(d, at) != d->carry.unit)
    sp_carry_end(d); /* it was meant for elsewhere */
  size_t count = gather(d, bytes, spans, &used, uses);
  *added = bytes - total(spans, count);
  uint64_t addr;
  int asked = sp_device_may_take(d, *added) && sp_device_nodes(d), failed = !asked;
  sp_device_unlock(d);
  if (asked)
    failed = count > 0 ? d->prim.carry(d->prim.self, at, bytes, spans, count) : d->prim.extend(d->prim.self, at, bytes, 0, 0, &addr);
  for (size_t i = 0; i < count && !failed; i++)
    sp_device_notify(d, STPLAN_UNMAPPED, spans[i].addr, spans[i].bytes);
  sp_device_lock(d);
  if (failed) {
    forget_left(d, count);
    put_back(d, used);
    d->carry.skip = count > 0;
    d->carry.failed += asked && count > 0 && *added == 0;
    return 0;
  }
  d->carry.failed = count > 0 ? 0 : d->carry.failed;
  SP_COUNT(d, moved_bytes, bytes - *added);
  d->carry.used = used;
  return 1;
}

void sp_carry_leave(stplan_device *d) {
  while (d->carry.used != NULL) {
    sp_range *r = d->carry.used;
    sp_zone zone = (sp_zone)r->zone;
    d->carry.used = r->chain;
    d->forgotten[zone] += sp_arena_decommit(&d->arena, r, 0);
  }
  sp_device_forget_ends(d);
}

void sp_carry_end(stplan_device *d) {
  while (d->carry.list != NULL) {
    sp_range *r = d->carry.list;
    d->carry.list = r->chain;
    sp_arena_give(&d->arena, r);
  }
  d->carry.bytes = 0;
}

static int within(const struct sp_left *l, uint64_t low, uint64_t high) { return l->addr < high && low < l->end; }

void sp_carry_uses(const stplan_device *d, sp_clock *uses) {
  for (const struct sp_left *l = d->carry.left; l != NULL; l = l->next)
    sp_clock_merge(uses, &l->uses);
}

int sp_carry_give(stplan_device *d, uint64_t low, uint64_t high) {
  struct sp_left **link = &d->carry.left;
  int all = 1;
  while (*link != NULL) {
    struct sp_left *l = *link;
    while (within(l, low, high) && l->addr < l->end && d->prim.give_back(d->prim.self, l->addr, l->unit) == 0)
      l->addr += l->unit;
    if (l->addr == l->end) {
      *link = l->next;
      free(l);
      continue;
    }
    all = all && !within(l, low, high);
    link = &l->next;
  }
  return all;
}

int sp_carry_clear(stplan_device *d, uint64_t low, uint64_t high) {
  sp_clock uses = {.owned = 0};
  int found = 0, given;
  for (const struct sp_left *l = d->carry.left; l != NULL; l = l->next) {
    if (!within(l, low, high))
      continue;
    sp_clock_merge(&uses, &l->uses);
    found = 1;
  }
  if (!found)
    return 1;
  given = sp_device_await(d, &uses) == 0;
  sp_device_unlock(d);
  if (given && (given = sp_hold_enter())) {
    given = sp_carry_give(d, low, high);
    sp_hold_leave();
  }
  sp_device_lock(d);
  for (struct sp_left *l = d->carry.left; l != NULL; l = l->next)
    l->blocked = l->blocked || within(l, low, high);
  return given;
}

int sp_carry_blocks(const stplan_device *d, uint64_t low, uint64_t high) {
  const struct sp_left *l = d->carry.left;
  while (l != NULL && !(l->blocked && within(l, low, high)))
    l = l->next;
  return l != NULL;
}

void sp_carry_unblock(stplan_device *d) {
  d->carry.skip = 0;
  for (struct sp_left *l = d->carry.left; l != NULL; l = l->next)
    l->blocked = 0;
}

void sp_carry_drop(stplan_device *d) { forget_left(d, SIZE_MAX); }
