#include "device_pins.h"

#include <stdlib.h>

/* One call of stplan_pin. */
struct sp_pin {
  struct sp_pin *next;
  uint64_t address, size;
  uint64_t low, high; /* the granules that hold these bytes */
};

void sp_pins_spare(const stplan_device *d, uint64_t *addr, uint64_t *end) {
  for (const sp_pin *p = d->pins; p != NULL; p = p->next)
    sp_larger_part(addr, end, p->low, p->high);
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
    uint64_t unit = d->prim.granularity;
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
