#include "device_trim.h"

#include "device_carry.h"
#include "device_defer.h"
#include "device_hold.h"
#include "device_pins.h"
#include "device_plan.h"
#include "device_wait.h"

/* whole_piece says whether the bytes are a whole piece of memory, which is not the plan's.
 * Without memory that moves nothing else can be given back. */
static int whole_piece(const stplan_device *d, const sp_range *r, uint64_t addr, uint64_t end) {
  int whole = addr == r->addr && end == r->addr + r->size && sp_arena_starts(r) && sp_arena_ends(r);
  return whole && !sp_device_plan_holds(d, r->addr);
}

/* Whole granules can be given back, and what a granule at the end of an extent
 * lacks to a whole one. Of the plan's memory the first granule stays, so that
 * its addresses stay ours. */
int sp_device_whole(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end) {
  if (r->taken || r->absent)
    return 0;
  if (!sp_device_moves(d))
    return whole_piece(d, r, *addr, *end);
  int last = *end == r->addr + r->size && (r->next == NULL || r->next->first);
  if (sp_device_plan_holds(d, r->addr) && *addr == sp_device_plan_base(d))
    *addr += sp_arena_unit(&d->arena, r);
  *addr = sp_round_up(*addr, sp_arena_unit(&d->arena, r));
  if (!last)
    *end = sp_round_down(*end, sp_arena_unit(&d->arena, r));
  return *addr < *end;
}

int sp_device_idle(const stplan_device *d, const sp_range *r, uint64_t *addr, uint64_t *end) {
  if (!sp_device_whole(d, r, addr, end))
    return 0;
  uint64_t whole = *end - *addr;
  sp_pins_spare(d, addr, end);
  return sp_device_moves(d) ? *addr < *end : *end - *addr == whole;
}

void sp_device_chain(stplan_device *d, sp_range *gap, uint64_t addr, uint64_t end, sp_range **list) {
  sp_range *r = sp_arena_take(&d->arena, gap, addr, end - addr);
  r->leaving = 1;
  r->chain = *list;
  *list = r;
}

/* give_granules gives bytes back granule by granule, up to the first that the device does
 * not take, and returns how many it has taken. They are told of when they are gone: their
 * addresses stay ours meanwhile. Called without the lock. */
static uint64_t give_granules(const stplan_device *d, uint64_t addr, uint64_t bytes, uint64_t unit) {
  uint64_t given = 0;
  while (given < bytes) {
    uint64_t next = sp_least(bytes - given, unit);
    if (d->prim.give_back(d->prim.self, addr + given, next) != 0)
      break;
    given += next;
  }
  if (given > 0)
    sp_device_notify(d, STPLAN_UNMAPPED, addr, given);
  return given;
}

/* give_piece gives a whole piece back. That is told before, as PyTorch does: who has
 * registered the memory ends that while it is there, and afterwards the addresses may be
 * another allocator's. If the device does not take it, it is told as taken again. Called
 * without the lock. */
static uint64_t give_piece(const stplan_device *d, uint64_t addr, uint64_t bytes) {
  sp_device_notify(d, STPLAN_PIECE_FREED, addr, bytes);
  if (d->prim.give_back(d->prim.self, addr, bytes) == 0)
    return bytes;
  sp_device_notify(d, STPLAN_PIECE_TAKEN, addr, bytes);
  return 0;
}

/* give gives back the bytes of a range that is out of use, and returns how many were.
 * What was not is free again. Locked; lets go of the lock. */
static uint64_t give(stplan_device *d, sp_range *r, sp_reason reason) {
  int moves = sp_device_moves(d);
  uint64_t unit = sp_arena_unit(&d->arena, r);
  sp_device_unlock(d);
  uint64_t given = moves ? give_granules(d, r->addr, r->size, unit) : give_piece(d, r->addr, r->size);
  sp_device_lock(d);
  sp_range *gone = given > 0 && given < r->size ? sp_arena_cut(&d->arena, r, given) : r;
  if (gone != r || given == 0)
    sp_arena_give(&d->arena, r);
  if (given == 0)
    return 0;
  sp_device_account(d, -(int64_t)given);
  sp_zone zone = (sp_zone)gone->zone;
  d->forgotten[zone] += sp_arena_decommit(&d->arena, gone, reason == SP_TO_LEND);
  sp_device_forget_ends(d);
  return given;
}

/* settle waits until nothing uses the ranges of a list any more, nor addresses that memory was carried
 * from: memory may be there too that is to go to the device. Zero is success; then sp_hold_leave is due. Locked; lets go of the lock. Growth lock held. */
static int settle(stplan_device *d, const sp_range *list, sp_reason reason) {
  sp_clock uses = {.owned = 0};
  for (; list != NULL; list = list->chain)
    sp_clock_merge(&uses, &list->uses);
  sp_carry_uses(d, &uses);
  if (d->kept || (reason == SP_TO_MOVE && sp_device_await(d, &uses) != 0))
    return 1;
  sp_device_unlock(d);
  if (!sp_hold_enter()) {
    d->held_up = STPLAN_HELD;
  } else if (reason != SP_TO_MOVE && d->prim.synchronize(d->prim.self) != 0) {
    d->held_up = STPLAN_FAILED;
    sp_hold_leave();
  } else if (!sp_carry_give(d, 0, UINT64_MAX)) {
    d->held_up = STPLAN_FAILED;
    sp_hold_leave();
  }
  sp_device_lock(d);
  return d->held_up != STPLAN_OK;
}

uint64_t sp_device_withdraw(stplan_device *d, sp_range *list, sp_reason reason) {
  uint64_t total = 0;
  d->held_up = STPLAN_OK;
  if (list == NULL)
    return 0;
  int held_up = settle(d, list, reason), failed = held_up;
  while (list != NULL) {
    sp_range *r = list;
    list = r->chain;
    uint64_t size = r->size, given = 0;
    if (failed)
      sp_arena_give(&d->arena, r);
    else
      given = give(d, r, reason);
    if (!failed && given < size) {
      failed = 1;
      d->held_up = STPLAN_FAILED;
    }
    total += given;
  }
  if (!held_up)
    sp_hold_leave();
  return total;
}

/* chain_idle chains an idle part of [low, high) of each free range there, and says whether there were
 * any. Locked; may let go of the lock. */
static int chain_idle(stplan_device *d, uint64_t low, uint64_t high, sp_range **list) {
  uint64_t below = high;
  int found = 0;
  while (sp_device_nodes(d)) {
    sp_range *r = sp_arena_below(&d->arena, below);
    if (r == NULL || r->addr + r->size <= low)
      break;
    below = r->addr;
    uint64_t addr = r->addr > low ? r->addr : low, end = sp_least(r->addr + r->size, high);
    if (!sp_device_idle(d, r, &addr, &end))
      continue;
    sp_device_chain(d, r, addr, end, list);
    found = 1;
  }
  return found;
}

uint64_t sp_device_trim(stplan_device *d, sp_reason reason) {
  sp_range *list = NULL;
  sp_device_recall_all(d);
  /* A free range with pinned granules has several idle parts. */
  while (chain_idle(d, 0, UINT64_MAX, &list) && d->pins != NULL)
    ;
  return sp_device_withdraw(d, list, reason);
}

uint64_t sp_device_gather(stplan_device *d, uint64_t low, uint64_t high) {
  sp_range *list = NULL;
  chain_idle(d, low, high, &list);
  uint64_t moved = sp_device_withdraw(d, list, SP_TO_MOVE);
  SP_COUNT(d, moved_bytes, moved);
  return moved;
}

void stplan_keep(stplan_device *d) {
  pthread_mutex_lock(&d->growth); /* what is being given back is given back first */
  sp_device_lock(d);
  d->kept = 1;
  sp_device_unlock(d);
  pthread_mutex_unlock(&d->growth);
}
