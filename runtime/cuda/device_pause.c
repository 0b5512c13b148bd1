/* device_pause.c: idle memory is given to others for a while, another allocator or process,
 * and taken back. Addresses stay as they are, so the plan stays too. What was given away is
 * absent and lent; whatever is asked for in between takes what it needs of it, or more. */
#include <string.h>

#include "device_grow.h"
#include "device_pins.h"
#include "device_trim.h"

/* Bytes that are taken back at once. The driver opens them to devices by one call, 21 us on
 * an H200 where a granule of 2 MiB takes 10. If memory has become scarce, less than this of
 * it is left. */
#define LOT (UINT64_C(64) << 20)

stplan_status stplan_pause(stplan_device *d, uint64_t *given) {
  sp_device_lock(d);
  sp_device_lock_growth(d);
  if (d->before == 0) { /* all that was lent has been made up for */
    sp_arena_unlend(&d->arena);
    memset(d->forgotten, 0, sizeof d->forgotten);
  }
  uint64_t reserved = d->counters.reserved_bytes;
  *given = sp_device_trim(d, SP_TO_LEND);
  stplan_status status = d->held_up;
  if (*given > 0 && d->before < reserved)
    d->before = reserved;
  sp_device_unlock(d);
  sp_device_unlock_growth(d);
  return status;
}

uint64_t stplan_empty_cache(stplan_device *d) {
  uint64_t given;
  stplan_pause(d, &given);
  return given;
}

/* take_lent takes up to `most` bytes that were lent, of the plan or of the pool. What the
 * device or the limit refuses ends it: then *refused is set. Locked; lets go of the lock.
 * Growth lock held. */
static uint64_t take_lent(stplan_device *d, int plan, uint64_t most, int *refused) {
  uint64_t taken = 0, below = UINT64_MAX;
  while (taken < most && !*refused) {
    const sp_range *r = sp_arena_lent(&d->arena, below);
    if (r == NULL)
      break;
    below = r->addr;
    uint64_t end = r->addr + r->size, unit = sp_arena_unit(&d->arena, r);
    if (sp_device_plan_holds(d, r->addr) != plan)
      continue;
    for (uint64_t at = below; at < end && taken < most && !*refused;) {
      uint64_t bytes = sp_least(end - at, sp_round_up(sp_least(LOT, most - taken), unit));
      *refused = !sp_device_map(d, at, at + bytes);
      taken += *refused ? 0 : bytes;
      at += bytes;
    }
  }
  return taken;
}

/* take_forgotten takes up to `most` bytes that went together with their addresses, in the
 * same way, at others. */
static uint64_t take_forgotten(stplan_device *d, sp_zone zone, uint64_t most, int *refused) {
  uint64_t taken = 0, all = sp_least(most, d->forgotten[zone]);
  while (taken < all && !*refused) {
    uint64_t bytes = sp_round_up(sp_least(LOT, all - taken), d->prim.granularity);
    *refused = !sp_device_add(d, zone, bytes);
    taken += *refused ? 0 : bytes;
  }
  d->forgotten[zone] -= sp_least(taken, d->forgotten[zone]);
  return taken;
}

/* missing is how many bytes fewer are reserved than before a pause. Locked. */
static uint64_t missing(const stplan_device *d) { return d->before == 0 ? 0 : d->before - d->counters.reserved_bytes; }

/* take_back takes back up to `most` bytes, those of the plan first: it has no others. Locked;
 * lets go of the lock. Growth lock held. */
static uint64_t take_back(stplan_device *d, uint64_t most, int *refused) {
  uint64_t taken = take_lent(d, 1, most, refused);
  taken += take_lent(d, 0, most - sp_least(most, taken), refused);
  for (int zone = 0; zone < SP_ZONES; zone++)
    taken += take_forgotten(d, (sp_zone)zone, most - sp_least(most, taken), refused);
  return taken;
}

stplan_status stplan_resume(stplan_device *d, uint64_t bytes, uint64_t *taken) {
  int refused = 0;
  sp_device_lock(d);
  sp_device_lock_growth(d);
  *taken = sp_device_moves(d) ? take_back(d, sp_least(bytes, missing(d)), &refused) : 0;
  sp_device_unlock(d);
  sp_device_unlock_growth(d);
  return refused ? STPLAN_NO_MEMORY : STPLAN_OK;
}

/* kept is how many bytes of a free range are the plan's to keep its addresses, or all of them
 * if its memory neither comes nor goes. */
static uint64_t kept(const stplan_device *d, const sp_range *r) {
  if (!sp_device_plan_holds(d, r->addr))
    return 0;
  if (!sp_device_moves(d))
    return r->size;
  return r->addr == sp_device_plan_base(d) ? sp_least(r->size, sp_arena_unit(&d->arena, r)) : 0;
}

/* count adds the bytes of a free range. */
static void count(const stplan_device *d, const sp_range *r, stplan_memory *memory) {
  uint64_t addr = r->addr, end = r->addr + r->size, whole = 0, pinned = 0, plan = kept(d, r);
  if (sp_device_whole(d, r, &addr, &end)) {
    whole = end - addr;
    pinned = sp_pins_bytes(d, addr, end);
    pinned = pinned > 0 && !sp_device_moves(d) ? whole : pinned;
  }
  memory->idle += whole - pinned;
  memory->pinned += pinned;
  memory->plan += plan;
  memory->beside += r->size - whole - plan;
}

void stplan_survey(stplan_device *d, stplan_memory *memory) {
  *memory = (stplan_memory){0};
  sp_device_lock(d);
  memory->given = missing(d);
  for (const sp_range *r = d->arena.last; r != NULL; r = r->prev) {
    if (r->taken && r->leaving)
      memory->beside += r->size;
    else if (r->taken)
      memory->live += r->size;
    else if (!r->absent)
      count(d, r, memory);
  }
  sp_device_unlock(d);
}
