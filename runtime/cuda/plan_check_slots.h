/* plan_check_slots.h: the rules about slots, and about cells, passes and waits,
 * which refer to slots. Each function checks one device and reports the first fault.
 * They rely on one another: phases come before slots, slots before the rest. */
#ifndef STPLAN_PLAN_CHECK_SLOTS_H
#define STPLAN_PLAN_CHECK_SLOTS_H

#include "plan.h"
#include "plan_fault.h"

/* The largest size or time, so that no sum of a few overflows. */
#define SP_MAX_NUMBER (UINT64_C(1) << 62)

sp_fault sp_check_slots(const sp_plan_device *d);
sp_fault sp_check_places(const sp_plan_device *d); /* that slots share */
sp_fault sp_check_cells(const sp_plan_device *d);
sp_fault sp_check_passes(const sp_plan_device *d);
sp_fault sp_check_waits(const sp_plan_device *d);

#endif
