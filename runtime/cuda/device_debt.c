#include "device_debt.h"

/* Without a bound, a run that repeats itself moves the same bytes in every
 * iteration, for ever, although a little more memory would end it. So it may
 * owe the sum of two parts. */

/* One part: 1/PEAK_SHARE of the most bytes that it has reserved. By itself it
 * lets runs reserve 5 to 8 % more than they allocate. */
enum { PEAK_SHARE = 2 };

/* The other: IDLE_TIMES the bytes that would be reserved beyond the most that
 * it has allocated. The more a run has beyond what it allocates, the longer
 * memory moves before more is added. */
enum { IDLE_TIMES = 32 };

/* The same for a run that a plan has left: the pool goes on among the plan's
 * blocks, which lie where it would not have put them. With 32 some such runs
 * came to reserve 2 % more than without a plan. */
enum { LEFT_TIMES = 64 };

/* One byte is repaid for this many that are allocated. With 2,000, and the
 * first part alone, one job came to reserve 9 % more than it allocates; with
 * 500 some that would settle went on moving. */
enum { REPAID_PER = 1000 };

int sp_debt_allows(sp_debt *debt, const stplan_counters *now, uint64_t bytes) {
  uint64_t repaid = (now->allocation_bytes - debt->repaid_at) / REPAID_PER, total = now->reserved_bytes + bytes;
  uint64_t idle = total > now->peak_allocated_bytes ? total - now->peak_allocated_bytes : 0;
  debt->owed -= repaid < debt->owed ? repaid : debt->owed;
  debt->repaid_at = now->allocation_bytes;
  return debt->owed <= now->peak_reserved_bytes / PEAK_SHARE + idle * (debt->left ? LEFT_TIMES : IDLE_TIMES);
}

void sp_debt_add(sp_debt *debt, uint64_t bytes) { debt->owed += bytes; }

void sp_debt_leave(sp_debt *debt) {
  debt->owed = 0;
  debt->left = 1;
}
