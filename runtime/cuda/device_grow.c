#include "device_grow.h"

#include "device_carry.h"
#include "device_move.h"
#include "device_trim.h"

/* taken notes memory that has come to an address, `added` bytes of it from the device, and tells of it. Locked;
 * lets go of the lock. Growth lock held. */
static void taken(stplan_device *d, uint64_t addr, uint64_t bytes, uint64_t added) {
  sp_device_unlock(d);
  sp_device_notify(d, sp_device_moves(d) ? STPLAN_MAPPED : STPLAN_PIECE_TAKEN, addr, bytes);
  sp_device_lock(d);
  SP_COUNT(d, growths, 1);
  sp_device_account(d, (int64_t)added);
  if (added > 0)
    sp_libraries_look(d);
}

/* begin_room asks the device for memory at new addresses, with room for `room` bytes in granules of
 * `unit`. 0 if the limit or the device has none. Locked; lets go of the lock. Growth lock held. */
static int begin_room(stplan_device *d, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  if (!sp_device_may_take(d, bytes))
    return 0;
  sp_device_unlock(d);
  int failed = d->prim.extend(d->prim.self, 0, bytes, room, unit, addr);
  sp_device_lock(d);
  if (!failed)
    taken(d, *addr, bytes, bytes);
  return !failed;
}

/* extend gets memory for bytes that are absent, or, if zone says so, for those behind the zone's growing
 * extent. 0 if that cannot be done now. Locked; lets go of the lock. Growth lock held. */
static int extend(stplan_device *d, uint64_t addr, uint64_t bytes, sp_zone zone) {
  sp_clock uses;
  uint64_t added;
  if (!sp_carry_extend(d, addr, bytes, &uses, &added))
    return 0;
  taken(d, addr, bytes, added);
  if (zone != SP_ZONES) {
    sp_arena_add(&d->arena, addr, bytes, sp_arena_unit(&d->arena, sp_arena_holding(&d->arena, addr - 1)), zone, 1, SP_ABSENT);
    d->end[zone] = addr + bytes;
  }
  sp_arena_commit(&d->arena, sp_arena_holding(&d->arena, addr), addr, bytes, &uses);
  sp_tally_set(&d->usage.small_reserved, d->arena.small_bytes);
  sp_carry_leave(d);
  return 1;
}

/* A pool whose memory moves grows by large granules, of POOL_LARGE_UNIT of the least ones each, in
 * a zone of their own: the driver takes as long for one of 8 MiB as for one of 2 MiB. It does for
 * blocks of one large granule or more once it has had POOL_LARGE_FROM of them, and at any time for
 * blocks of POOL_HUGE of them or more: what such blocks leave of a granule at their ends is little,
 * and what they move is most. From 16 GiB on with 16 MiB the recordings reserve 0.08 % more than
 * without, with 8 MiB 0.07 % less; with 8 MiB for any block from 8 GiB on, one that has 9 GiB
 * reserves 1.1 % more. Of blocks of 2, 4, 8 and 32 MiB or more, none is better than 8. Huge ones of
 * 0.75 to 2 GiB or more are the same; with 512 MiB that one of 9 GiB reserves 1.3 % more. With 32 MiB
 * for huge ones one job reserves 1.1 % less, and two reserve 0.6 and 1.5 % more (docs/results/pool.md). */
enum { POOL_LARGE_FROM = 2048, POOL_LARGE_UNIT = 4, POOL_HUGE = 128 };

static uint64_t large_unit(const stplan_device *d) { return POOL_LARGE_UNIT * d->prim.granularity; }

/* unit_of is the bytes of granules in a new room of a zone. */
static uint64_t unit_of(const stplan_device *d, sp_zone zone) {
  return zone == SP_ZONE_LARGE ? large_unit(d) : d->prim.granularity;
}

/* grows_in is the zone in which the pool grows for a block. While a plan is served the pool is
 * little, and no large granules begin; those that are there stay in use. */
static sp_zone grows_in(const stplan_device *d, sp_zone zone, uint64_t need) {
  if (zone != SP_ZONE_OPEN || need < large_unit(d) || !sp_device_moves(d))
    return zone;
  int large = need >= POOL_HUGE * large_unit(d) || d->counters.peak_reserved_bytes >= POOL_LARGE_FROM * large_unit(d);
  return large && (d->end[SP_ZONE_LARGE] != 0 || !sp_device_plan_served(d)) ? SP_ZONE_LARGE : zone;
}

/* A window is addresses that a request could have: the first one, how many bytes of whole
 * granules have to be taken, and whether it goes on beyond the zone's growing extent. */
typedef struct {
  uint64_t addr, missing;
  int open;
} window;

/* cut_granule says whether an absent range begins within a granule, whose first part has memory: a plan's last
 * granule has memory only as far as its places go, and detours go on behind it. The device gives none that begins there. */
static int cut_granule(const stplan_device *d, const sp_range *r) { return r->absent && r->addr % sp_arena_unit(&d->arena, r) != 0; }

/* along is the window of `need` bytes from the start of a range upwards, or
 * from its end downwards. 0 if something is in between. */
static int along(const stplan_device *d, const sp_range *r, int up, sp_zone zone, uint64_t need, window *w) {
  uint64_t left = need;
  *w = (window){.addr = up ? r->addr : r->addr + r->size - need};
  for (;;) {
    if (r->taken || r->zone != zone || cut_granule(d, r) || (r->absent && sp_carry_blocks(d, r->addr, r->addr + r->size)))
      return 0;
    if (r->absent)
      w->missing += sp_least(r->size, sp_round_up(sp_least(left, r->size), sp_arena_unit(&d->arena, r)));
    left -= sp_least(left, r->size);
    int edge = up ? r->next == NULL || r->next->first : r->first;
    if (left > 0 && up && edge && r->addr + r->size == d->end[zone]) {
      w->missing += sp_round_up(left, sp_arena_unit(&d->arena, r));
      w->open = 1;
      return left <= d->most[zone] - d->end[zone];
    }
    if (left == 0 || edge)
      return left == 0;
    r = up ? r->next : r->prev;
  }
}

/* consider keeps the better of two windows: the one that misses less. */
static void consider(const stplan_device *d, const sp_range *r, int up, sp_zone zone, uint64_t need, window *best) {
  window w;
  if (along(d, r, up, zone, need, &w) && w.missing < best->missing)
    *best = w;
}

/* free_beside is the free range before or behind an absent one, or the absent
 * one itself if there is none. */
static const sp_range *free_beside(const sp_range *r, int before) {
  const sp_range *n = before ? r->prev : r->next;
  int apart = before ? r->first : n != NULL && n->first;
  return n != NULL && !apart && !n->taken && n->zone == r->zone ? n : r;
}

/* find_window is the best window for a request: beside something absent, or at
 * the end of the zone's growing extent. 0 if there is none. */
static int find_window(const stplan_device *d, sp_zone zone, uint64_t need, window *best) {
  *best = (window){.missing = UINT64_MAX};
  const sp_range *last = d->end[zone] == 0 ? NULL : sp_arena_holding(&d->arena, d->end[zone] - 1);
  if (last != NULL && last->taken && need <= d->most[zone] - d->end[zone])
    *best = (window){.addr = d->end[zone], .missing = sp_round_up(need, sp_arena_unit(&d->arena, last)), .open = 1};
  else if (last != NULL && last->taken)
    ; /* its room has no addresses left for this; some of those that it has lack memory */
  else if (last != NULL)
    consider(d, last->absent ? free_beside(last, 1) : last, 1, zone, need, best);
  for (const sp_range *r = sp_arena_next(&d->arena.absent, 0, 0); r != NULL; r = sp_arena_larger(r)) {
    if (r->zone != zone)
      continue;
    consider(d, free_beside(r, 1), 1, zone, need, best);
    consider(d, free_beside(r, 0), 0, zone, need, best);
  }
  return best->missing != UINT64_MAX;
}

/* choose_window is the best window for a request that makes zone *zone grow, in it or in the
 * other one of large blocks, which is *zone then; but what goes on beyond the end of OPEN is
 * for blocks smaller than a large granule, once there are such. 0 if there is none. */
static int choose_window(const stplan_device *d, sp_zone *zone, uint64_t need, window *best) {
  window w;
  int found = find_window(d, *zone, need, best);
  if (*zone != SP_ZONE_OPEN && *zone != SP_ZONE_LARGE)
    return found;
  sp_zone other = *zone == SP_ZONE_OPEN ? SP_ZONE_LARGE : SP_ZONE_OPEN;
  if (!find_window(d, other, need, &w) || (w.open && other == SP_ZONE_OPEN) || w.missing >= (found ? best->missing : need))
    return found;
  *zone = other;
  *best = w;
  return 1;
}

/* within is the whole granules of an absent range that [addr, end) needs of it. */
static void within(const stplan_device *d, const sp_range *r, uint64_t addr, uint64_t end, uint64_t *low, uint64_t *high) {
  *low = addr > r->addr ? sp_round_down(addr, sp_arena_unit(&d->arena, r)) : r->addr;
  *high = sp_least(r->addr + r->size, sp_round_up(end, sp_arena_unit(&d->arena, r)));
}

int sp_device_map(stplan_device *d, uint64_t addr, uint64_t end) {
  const sp_range *r = sp_arena_holding(&d->arena, addr);
  while (r != NULL && r->addr < end) {
    uint64_t low = r->addr, high = r->addr + r->size;
    if (r->absent) {
      within(d, r, addr, end, &low, &high);
      if (!extend(d, low, high - low, SP_ZONES))
        return 0;
    }
    if (high >= end)
      return 1;
    r = sp_arena_holding(&d->arena, high);
  }
  return 1;
}

/* in_handles is how many bytes are taken for `bytes`: whole handles, if memory is virtual
 * and does not move. */
static uint64_t in_handles(const stplan_device *d, uint64_t bytes) {
  return d->prim.partial && d->still ? sp_round_up(bytes, sp_handle_size(bytes, SP_HANDLE_MOST, d->prim.granularity)) : bytes;
}

/* Memory that is virtual and does not move comes in pieces of at least 1/PIECE_SHARE of what
 * is reserved, from SP_HANDLE_LEAST to SP_HANDLE_MOST. Pieces of what is asked for are cut
 * up by smaller requests, and hold no large one any more. Over the recordings this reserves
 * at most 4 % more than native; SP_HANDLE_LEAST alone, 9 %. Of 16, 32 and 64, tried on six
 * of them, none is the best for all. */
enum { PIECE_SHARE = 32 };

/* least_piece is the least size of a piece, if there is as much; 0 if memory moves. */
static uint64_t least_piece(const stplan_device *d) {
  if (!d->prim.partial || !d->still)
    return 0;
  uint64_t share = sp_round_up(d->counters.reserved_bytes / PIECE_SHARE, d->prim.granularity);
  return share < SP_HANDLE_LEAST ? SP_HANDLE_LEAST : sp_least(share, SP_HANDLE_MOST);
}

/* grow_fresh takes an extent of its own, with addresses for `room` bytes if memory moves.
 * Locked; lets go of the lock. Growth lock held. */
static int grow_fresh(stplan_device *d, sp_zone zone, uint64_t need, uint64_t room, uint64_t *addr) {
  uint64_t unit = unit_of(d, zone), bytes = in_handles(d, sp_round_up(need, unit)), piece = least_piece(d);
  if (piece <= bytes || !begin_room(d, piece, piece, unit, addr)) {
    piece = bytes;
    if (!begin_room(d, bytes, room > bytes ? room : bytes, unit, addr))
      return 0;
  }
  sp_arena_add(&d->arena, *addr, piece, unit, zone, 0, SP_FREE);
  sp_tally_set(&d->usage.small_reserved, d->arena.small_bytes);
  return 1;
}

/* grow_end makes the zone's growing extent go on to `end`. Locked; lets go of
 * the lock. Growth lock held. */
static int grow_end(stplan_device *d, sp_zone zone, uint64_t end) {
  uint64_t from = d->end[zone];
  if (end <= from)
    return 1;
  uint64_t unit = sp_arena_unit(&d->arena, sp_arena_holding(&d->arena, from - 1)), bytes = sp_round_up(end - from, unit);
  return extend(d, from, bytes, zone);
}

/* fill takes what a window misses. Locked; lets go of the lock. Growth lock held. */
static int fill(stplan_device *d, sp_zone zone, uint64_t need, const window *w) {
  uint64_t end = w->addr + need;
  return sp_device_nodes(d) && sp_device_map(d, w->addr, end) && (!w->open || (sp_device_nodes(d) && grow_end(d, zone, end)));
}

/* clear makes room for what a window misses, and returns how many bytes that
 * is. Locked; lets go of the lock. Growth lock held. */
static uint64_t clear(stplan_device *d, uint64_t need, const window *w) {
  sp_device_make_room(d, w->missing, w->addr, w->addr + need);
  return w->missing;
}

/* fill_lot gives the zone of small blocks SP_MOVE_LEAST bytes at once, if these are
 * idle elsewhere. What small blocks lack is never worth a stall by itself, so they
 * would take new memory, a granule at a time, beside any that is idle. While a plan is
 * served it alone says what moves. Locked; lets go of the lock. Growth lock held. */
static int fill_lot(stplan_device *d, sp_zone zone) {
  const stplan_counters *c = &d->counters;
  window w;
  if (zone != SP_ZONE_SMALL || sp_device_plan_served(d) || c->reserved_bytes + d->prim.granularity <= c->peak_reserved_bytes ||
      !find_window(d, zone, SP_MOVE_LEAST, &w))
    return 0;
  uint64_t bytes = clear(d, SP_MOVE_LEAST, &w);
  int done = c->reserved_bytes + sp_carry_adds(d, bytes) <= c->peak_reserved_bytes && fill(d, zone, SP_MOVE_LEAST, &w);
  sp_carry_end(d);
  return done;
}

/* grow_room takes an extent that goes on to grow, if memory moves. Locked; lets go of the
 * lock. Growth lock held. */
static int grow_room(stplan_device *d, sp_zone zone, uint64_t need) {
  uint64_t addr, room = sp_device_moves(d) ? d->prim.span : 0;
  if (!sp_device_nodes(d) || !grow_fresh(d, zone, need, room, &addr))
    return 0;
  if (sp_device_moves(d)) {
    uint64_t bytes = sp_round_up(need, unit_of(d, zone));
    d->end[zone] = addr + bytes;
    d->most[zone] = addr + (room > bytes ? room : bytes);
  }
  return 1;
}

int sp_device_add(stplan_device *d, sp_zone zone, uint64_t bytes) {
  if (d->end[zone] == 0)
    return grow_room(d, zone, bytes);
  return sp_device_nodes(d) && grow_end(d, zone, d->end[zone] + bytes);
}

/* grow_in takes as much as makes `need` bytes fit, in a zone or in the other one of large
 * blocks. Locked; lets go of the lock. Growth lock held. */
static int grow_in(stplan_device *d, sp_zone zone, uint64_t need) {
  window w;
  sp_zone into = zone;
  int found = sp_device_moves(d) && choose_window(d, &into, need, &w), again = found, skipped = 0;
  while (again) {
    clear(d, need, &w);
    int done = fill(d, into, need, &w);
    sp_carry_end(d);
    if (done)
      return 1;
    /* Its addresses may still be in use: then there may be others. Or the device has not carried, and may move
     * memory all the same. */
    again = sp_carry_blocks(d, w.addr, w.addr + need) || (d->carry.skip && !skipped);
    skipped = d->carry.skip;
    into = again ? zone : into;
    again = again && choose_window(d, &into, need, &w);
  }
  if (!found)
    sp_device_make_room(d, sp_round_up(need, unit_of(d, zone)), 0, 0);
  return grow_room(d, into, need);
}

/* grow_by takes as much as makes `need` bytes fit into the zone, or the other one of large
 * blocks: in small granules, if there are none or no addresses for large ones. Locked; lets
 * go of the lock. Growth lock held. */
static int grow_by(stplan_device *d, sp_zone zone, uint64_t need) {
  if (sp_device_moves(d) && fill_lot(d, zone))
    return 1;
  sp_zone into = grows_in(d, zone, need);
  return grow_in(d, into, need) || (into != zone && grow_in(d, zone, need));
}

/* fits says whether the zone has a free range for a block, or the other one of large blocks. */
static int fits(const stplan_device *d, sp_zone zone, uint64_t need) {
  return sp_arena_next(&d->arena.gaps[zone], need, 0) != NULL ||
         (zone == SP_ZONE_OPEN && sp_arena_next(&d->arena.gaps[SP_ZONE_LARGE], need, 0) != NULL);
}

/* How memory is asked for, one after the other until there is some: if the device has little left, without what is left
 * to libraries; as usual; with as much given back where it is idle, as the device has refused it; with all
 * given back that is idle. What is given back may be taken by another process, so it is no more
 * than is needed, as long as that will do. */
typedef enum { SPARING, PLAINLY, MOVING, TRIMMED } attempt;

int sp_device_grow(stplan_device *d, sp_zone zone, uint64_t need, int stream, int fresh, uint64_t *addr) {
  static const attempt attempts[] = {SPARING, PLAINLY, MOVING, TRIMMED};
  int done = 0;
  sp_device_lock_growth(d);
  d->carry.stream = stream;
  for (size_t i = 0; i < sizeof attempts / sizeof *attempts && !done && sp_device_nodes(d); i++) {
    if (fresh && (attempts[i] == SPARING || attempts[i] == MOVING))
      continue; /* what it gets must not have to be waited for */
    if (attempts[i] == SPARING && !sp_libraries_spare(d, need))
      continue;
    if (attempts[i] == TRIMMED)
      sp_device_trim(d, SP_TO_TRIM);
    d->refused = attempts[i] == MOVING;
    if (fresh)
      done = grow_fresh(d, zone, need, 0, addr);
    else
      done = fits(d, zone, need) || grow_by(d, zone, need);
    d->refused = 0;
    if (attempts[i] == SPARING) {
      sp_libraries_done(d);
      sp_carry_unblock(d);
    }
  }
  sp_carry_unblock(d);
  sp_device_unlock_growth(d);
  return done;
}

void sp_device_begin(stplan_device *d, sp_place *place) {
  sp_device_lock_growth(d);
  if (sp_device_plan_needs_memory(d) && sp_device_nodes(d)) {
    uint64_t bytes = sp_device_plan_bytes(d), base = 0;
    if (bytes > 0 && bytes <= SP_LARGEST)
      bytes = in_handles(d, bytes);
    uint64_t unit = sp_device_plan_unit(d);
    if (unit > d->prim.granularity)
      bytes = sp_round_up(bytes, unit);
    uint64_t first = sp_device_moves(d) ? sp_least(bytes, unit) : bytes, spare = sp_device_plan_spare(d);
    int fits = bytes > 0 && bytes <= SP_LARGEST;
    int done = fits && spare > 0 && begin_room(d, first, bytes + spare, unit, &base);
    if (fits && !done) { /* there may be no addresses for detours */
      spare = 0;
      done = begin_room(d, first, bytes, unit, &base);
    }
    if (done) {
      sp_arena_add(&d->arena, base, first, unit, SP_ZONE_PLAN, 0, SP_FREE);
      if (first < bytes)
        sp_arena_add(&d->arena, base + first, bytes - first, unit, SP_ZONE_PLAN, 1, SP_ABSENT);
    }
    sp_device_plan_begin(d, done ? base : 0, bytes, spare);
  }
  place->address += sp_device_plan_base(d);
  place->planned = sp_device_plan_base(d) != 0;
  sp_device_unlock_growth(d);
}

/* missing is how many bytes sp_device_map would take for [addr, end), from range r on. */
static uint64_t missing(const stplan_device *d, const sp_range *r, uint64_t addr, uint64_t end) {
  uint64_t bytes = 0, low, high;
  for (; r != NULL && r->addr < end; r = r->next) {
    if (!r->absent)
      continue;
    within(d, r, addr, end, &low, &high);
    bytes += high - low;
  }
  return bytes;
}

int sp_device_commit(stplan_device *d, uint64_t addr, uint64_t size, int stream) {
  int done = 1;
  if (d->still)
    return 0;
  sp_device_lock_growth(d);
  d->carry.stream = stream;
  const sp_range *r = sp_arena_absent(&d->arena, addr, size);
  if (r != NULL) {
    uint64_t bytes = missing(d, r, addr, addr + size);
    int served = 1;
    done = 0;
    for (int refused = 0; refused < 2 && served && !done; refused++) {
      d->refused = refused;
      served = sp_device_make_room(d, bytes, addr, addr + size);
      done = served && sp_device_map(d, addr, addr + size);
      sp_carry_end(d);
    }
    d->refused = 0;
    int blocked = sp_carry_blocks(d, addr, addr + size); /* for this request only */
    sp_carry_unblock(d);
    if (served && !done && !blocked && d->before == 0)
      sp_device_plan_give_up(d); /* the device is too small for it; what was lent comes back */
  }
  sp_device_unlock_growth(d);
  return done;
}

/* complete_plan takes what the plan lacks, if it is served and worth that. Locked; lets go
 * of the lock. Growth lock held. */
static void complete_plan(stplan_device *d) {
  uint64_t base = sp_device_plan_base(d);
  if (base == 0 || !sp_device_plan_served(d))
    return;
  uint64_t first = base + sp_device_plan_bottom(d), end = base + sp_device_plan_bytes(d);
  uint64_t lacks = missing(d, sp_arena_holding(&d->arena, first), first, end);
  if (!sp_device_plan_costs(d, lacks, lacks, SP_EXCESS_ENDS))
    sp_device_map(d, first, end);
}

void stplan_stop_moving(stplan_device *d) {
  sp_device_lock(d);
  sp_device_lock_growth(d);
  if (!d->still) {
    sp_carry_clear(d, 0, UINT64_MAX);
    complete_plan(d);
    d->still = 1;
    sp_device_unlock(d);
    if (d->prim.stop_moving != NULL)
      d->prim.stop_moving(d->prim.self);
    sp_device_lock(d);
  }
  sp_device_unlock(d);
  sp_device_unlock_growth(d);
}
