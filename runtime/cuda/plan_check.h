/* plan_check.h: every rule of docs/planfile.md about the records of a plan. */
#ifndef STPLAN_PLAN_CHECK_H
#define STPLAN_PLAN_CHECK_H

#include "plan.h"
#include "plan_fault.h"

/* sp_plan_check_records checks the records of a plan whose sections are known
 * to lie within the file, the producer, `length` bytes of text, and that the
 * records demand the version that the file has. Running out of host memory is
 * reported as a fault. */
sp_fault sp_plan_check_records(const stplan_plan *plan, uint32_t version, const uint8_t *producer, uint64_t length);

#endif
