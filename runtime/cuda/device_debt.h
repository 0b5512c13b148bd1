/* device_debt.h: how many bytes a run may still move. Moving memory takes
 * time, so bytes that move are owed, and are repaid as the run allocates.
 * docs/runtime.md ("Memory that moves") says how the bounds were found. */
#ifndef STPLAN_DEVICE_DEBT_H
#define STPLAN_DEVICE_DEBT_H

#include <stdint.h>

#include "stplan.h"

/* Its fields are private to device_debt.c. All zero: nothing is owed. */
typedef struct {
  uint64_t owed;      /* bytes that moved and are not repaid yet */
  uint64_t repaid_at; /* allocation_bytes when that was last reckoned */
  int left;           /* a plan has left blocks behind */
} sp_debt;

/* sp_debt_owed is how many bytes the run owes now. */
uint64_t sp_debt_owed(const sp_debt *debt, const stplan_counters *now);

/* sp_debt_allows says whether more may move, rather than `bytes` more be reserved. `alone`
 * says that no plan is served. */
int sp_debt_allows(sp_debt *debt, const stplan_counters *now, uint64_t bytes, int alone);

/* sp_debt_add notes bytes that moved. sp_debt_come is told that a plan has been put in place in the run: it
 * forgets all that is owed. sp_debt_leave is told that a plan leaves its blocks to the pool: it does so too,
 * and more may move from now on. */
void sp_debt_add(sp_debt *debt, uint64_t bytes);
void sp_debt_come(sp_debt *debt);
void sp_debt_leave(sp_debt *debt);

/* sp_debt_far says whether, with `bytes` more, far more would be reserved than the most that has been
 * allocated once `more` are too, and `least` more at least. */
int sp_debt_far(const stplan_counters *now, uint64_t bytes, uint64_t more, uint64_t least);

#endif
