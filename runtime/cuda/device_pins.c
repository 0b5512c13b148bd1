#include "device_pins.h"

#include <stdlib.h>

/* One call of stplan_pin. */
struct sp_pin {
  struct sp_pin *next;
  uint64_t address, size;
  uint64_t low, high; /* the granules that hold these bytes */
};

/* next_pinned finds the next pinned bytes at or behind addr: from *low to where one of the
 * pins there ends. Both are `end` if there are none before that. */
static void next_pinned(const stplan_device *d, uint64_t addr, uint64_t end, uint64_t *low, uint64_t *high) {
  *low = *high = end;
  for (const sp_pin *p = d->pins; p != NULL; p = p->next) {
    uint64_t from = p->low > addr ? p->low : addr;
    if (p->high > from && from < *low) {
      *low = from;
      *high = sp_least(p->high, end);
    }
  }
}

void sp_pins_spare(const stplan_device *d, uint64_t *addr, uint64_t *end) {
  uint64_t from = *addr, best = *addr, size = 0, low, high;
  while (from < *end) {
    next_pinned(d, from, *end, &low, &high);
    if (low - from > size) {
      best = from;
      size = low - from;
    }
    from = high;
  }
  *addr = best;
  *end = best + size;
}

uint64_t sp_pins_bytes(const stplan_device *d, uint64_t addr, uint64_t end) {
  uint64_t bytes = 0, low, high;
  while (addr < end) {
    next_pinned(d, addr, end, &low, &high);
    bytes += high - low;
    addr = high;
  }
  return bytes;
}

void sp_pins_drop(stplan_device *d) {
  while (d->pins != NULL) {
    sp_pin *p = d->pins;
    d->pins = p->next;
    free(p);
  }
}

stplan_status stplan_pin(stplan_device *d, uint64_t address, uint64_t size) {
  sp_pin *p = malloc(sizeof *p);
  if (p == NULL)
    return STPLAN_FAILED;
  sp_device_lock(d);
  const sp_range *r = sp_arena_holding(&d->arena, address);
  int ours = r != NULL && r->taken && !r->leaving && size > 0 && size <= r->size - (address - r->addr);
  if (ours) {
    uint64_t unit = sp_arena_unit(&d->arena, r);
    *p = (sp_pin){d->pins, address, size, sp_round_down(address, unit), sp_round_up(address + size, unit)};
    d->pins = p;
  }
  sp_device_unlock(d);
  if (!ours)
    free(p);
  return ours ? STPLAN_OK : STPLAN_BAD_POINTER;
}

stplan_status stplan_unpin(stplan_device *d, uint64_t address, uint64_t size) {
  sp_device_lock(d);
  sp_pin **link = &d->pins;
  while (*link != NULL && ((*link)->address != address || (*link)->size != size))
    link = &(*link)->next;
  sp_pin *p = *link;
  if (p != NULL)
    *link = p->next;
  sp_device_unlock(d);
  free(p);
  return p == NULL ? STPLAN_BAD_POINTER : STPLAN_OK;
}
