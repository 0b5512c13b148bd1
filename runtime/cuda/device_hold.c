#define _POSIX_C_SOURCE 200809L

#include "device_hold.h"

#include <pthread.h>

#include "stplan.h"

/* Held for reading while memory is given back, which several devices may do at a time; for
 * writing while `held` changes. A capture may have streams of several devices, so holds are
 * the process's. */
static pthread_rwlock_t giving = PTHREAD_RWLOCK_INITIALIZER;
static int held; /* calls of stplan_hold that have not been undone */

int sp_hold_enter(void) {
  pthread_rwlock_rdlock(&giving);
  if (held == 0)
    return 1;
  pthread_rwlock_unlock(&giving);
  return 0;
}

void sp_hold_leave(void) { pthread_rwlock_unlock(&giving); }

void stplan_hold(int hold) {
  pthread_rwlock_wrlock(&giving);
  held += hold ? 1 : -1;
  pthread_rwlock_unlock(&giving);
}
