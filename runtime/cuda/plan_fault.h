/* plan_fault.h: how the checks of a plan say which rule is broken. */
#ifndef STPLAN_PLAN_FAULT_H
#define STPLAN_PLAN_FAULT_H

#include <stdint.h>

/* A broken rule: the kind and the index of the record that breaks it, and what
 * is wrong. Nothing is wrong if `rule` is NULL. */
typedef struct {
  const char *record;
  uint64_t index;
  const char *rule;
} sp_fault;

#define SP_FAULT(what, i, why) ((sp_fault){.record = (what), .index = (i), .rule = (why)})
#define SP_NO_FAULT ((sp_fault){.rule = NULL})

#endif
