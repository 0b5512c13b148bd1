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
 * came to reserve 2 % more than without a plan. Far beyond what they allocate they owe FAR_TIMES while no plan is served, as
 * pools do: with LEFT_TIMES two small ones reserved 2 to 3 % more than those. */
enum { LEFT_TIMES = 64 };

/* A pool that no plan is part of, with more than 1/FAR_SHARE of the most that has been allocated
 * beyond that, may owe FAR_TIMES what would be beyond, and moves memory for any need (device_move.c). Few
 * jobs get there: those with large blocks of many sizes, and small ones. With 96, 128, 160, 192 and 224, such
 * a recording reserves 2.5, 2.4, 2.1, 1.9 and 1.8 % more than it allocates in 40 more iterations, for
 * 47, 54, 58, 60 and 61 GB that move. With 256 one that repeats itself goes on moving (docs/results/pool.md). */
enum { FAR_SHARE = 55, FAR_TIMES = 192 };

/* A pool that no plan is part of, with at most 1/SLACK_SHARE of the most that has been
 * allocated beyond that, may owe less: 1/SLACK_PEAK_SHARE of the most that it has reserved,
 * and SLACK_TIMES what would be beyond. A little memory, early, saves many moves: a
 * third less moves over the recordings, 40 iterations longer. Those that have more beyond owe
 * as above. With 1/10 and 8 times less still moves, and jobs of experts come to
 * reserve almost what expandable segments would (docs/results/pool.md). */
enum { SLACK_SHARE = 66, SLACK_PEAK_SHARE = 7, SLACK_TIMES = 16 };

/* One byte is repaid for this many that are allocated. With 2,000, and the
 * first part alone, one job came to reserve 9 % more than it allocates; with
 * 500 some that would settle went on moving. */
enum { REPAID_PER = 1000 };

/* beyond is how much more would be reserved, with `bytes` more, than the most that has been allocated. */
static uint64_t beyond(const stplan_counters *now, uint64_t bytes) {
  uint64_t total = now->reserved_bytes + bytes;
  return total > now->peak_allocated_bytes ? total - now->peak_allocated_bytes : 0;
}

static int far(const stplan_counters *now, uint64_t idle) { return idle > now->peak_allocated_bytes / FAR_SHARE; }

int sp_debt_far(const stplan_counters *now, uint64_t bytes, uint64_t more, uint64_t least) {
  uint64_t idle = beyond(now, bytes), would = now->allocated_bytes + more;
  uint64_t raised = would > now->peak_allocated_bytes ? would - now->peak_allocated_bytes : 0;
  return idle >= least + raised && far(now, idle - raised);
}

/* bound is how much a run may owe that would have `idle` bytes beyond what it has allocated. */
static uint64_t bound(const sp_debt *debt, const stplan_counters *now, uint64_t idle, int alone) {
  uint64_t peak = now->peak_reserved_bytes;
  if (debt->left)
    return peak / PEAK_SHARE + idle * (alone && far(now, idle) ? FAR_TIMES : LEFT_TIMES);
  if (alone && idle <= now->peak_allocated_bytes / SLACK_SHARE)
    return peak / SLACK_PEAK_SHARE + idle * SLACK_TIMES;
  if (alone && far(now, idle))
    return peak / PEAK_SHARE + idle * FAR_TIMES;
  return peak / PEAK_SHARE + idle * IDLE_TIMES;
}

uint64_t sp_debt_owed(const sp_debt *debt, const stplan_counters *now) {
  uint64_t repaid = (now->allocation_bytes - debt->repaid_at) / REPAID_PER;
  return repaid < debt->owed ? debt->owed - repaid : 0;
}

int sp_debt_allows(sp_debt *debt, const stplan_counters *now, uint64_t bytes, int alone) {
  debt->owed = sp_debt_owed(debt, now);
  debt->repaid_at = now->allocation_bytes;
  return debt->owed <= bound(debt, now, beyond(now, bytes), alone);
}

void sp_debt_add(sp_debt *debt, uint64_t bytes) { debt->owed += bytes; }

/* What has moved until now says nothing about the plan's places, and a pool that is far beyond what it
 * allocates may owe more than a run with a plan may at all. A plan that owed that could move nothing: one that
 * had 94 % of the bytes on plan took 3 % more than the run allocates, and was given up, in its first pass. */
void sp_debt_come(sp_debt *debt) { debt->owed = 0; }

/* Only the first time: a plan that does not know the run's evaluations leaves at each of them, and comes back. Without debts each
 * time, a fine-tuning of adapters moved 3.6 times what it reserves, and with them 2.2 times. */
void sp_debt_leave(sp_debt *debt) {
  if (!debt->left)
    debt->owed = 0;
  debt->left = 1;
}
