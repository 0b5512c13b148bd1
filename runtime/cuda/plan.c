#include "plan.h"

#include "plan_format.h"

const sp_plan_device *sp_plan_find(const stplan_plan *plan, int ordinal) {
  for (uint32_t i = 0; i < plan->device_count; i++)
    if (ordinal >= 0 && plan->devices[i].ordinal == (uint32_t)ordinal)
      return &plan->devices[i];
  return NULL;
}

uint64_t sp_plan_stream(const sp_plan_device *d, uint64_t i) { return sp_le64(d->streams + i * SP_STREAM_BYTES); }

sp_slot sp_plan_slot(const sp_plan_device *d, uint64_t i) {
  const uint8_t *p = d->slots + i * SP_SLOT_BYTES;
  return (sp_slot){sp_le64(p),      sp_le64(p + 8),  sp_le64(p + 16), sp_le64(p + 24), sp_le64(p + 32), sp_le64(p + 40),
                   sp_le64(p + 48), sp_le32(p + 56), sp_le32(p + 60), sp_le32(p + 64), sp_le32(p + 68)};
}

sp_wait sp_plan_wait(const sp_plan_device *d, uint64_t i) {
  const uint8_t *p = d->waits + i * SP_WAIT_BYTES;
  return (sp_wait){sp_le32(p), sp_le32(p + 4), sp_le32(p + 8)};
}

sp_phase sp_plan_phase(const sp_plan_device *d, uint64_t i) {
  const uint8_t *p = d->phases + i * SP_PHASE_BYTES;
  return (sp_phase){sp_le32(p), sp_le32(p + 4), sp_le64(p + 8), sp_le64(p + 16), sp_le64(p + 24), sp_le64(p + 32), sp_le64(p + 40), sp_le64(p + 48)};
}

sp_pass sp_plan_pass(const sp_plan_device *d, uint64_t i) {
  const uint8_t *p = d->passes + i * SP_PASS_BYTES;
  return (sp_pass){sp_le64(p), sp_le32(p + 8), sp_le32(p + 12)};
}

uint64_t sp_plan_phase_of(const sp_plan_device *d, uint64_t i) {
  uint64_t p = d->phase_count == 0 ? 0 : d->phase_count - 1;
  while (p > 0 && i < sp_plan_phase(d, p).first_slot)
    p--;
  return p;
}
