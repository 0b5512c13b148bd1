/* process_history.c: the history of a process, which is that of all its devices, and plans that
 * are made of it while it goes on. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan.h"
#include "process.h"

/* Held while histories are written and ended, and while plans are listed. */
static pthread_mutex_t saving = PTHREAD_MUTEX_INITIALIZER;

void stplan_step(unsigned optimizer) {
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = stplan_opened(i);
    if (d != NULL)
      stplan_history_step(d, optimizer);
  }
}

int stplan_learns(unsigned first, int ending) {
  int due = 0;
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = stplan_opened(i);
    if (d != NULL && stplan_learn_due(d, first, ending))
      due = 1;
  }
  return due;
}

/* opened lists the devices that have been used, and returns how many there are. */
static size_t opened(stplan_recorded all[STPLAN_DEVICES]) {
  size_t count = 0;
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = stplan_opened(i);
    if (d != NULL)
      all[count++] = (stplan_recorded){.device = d, .ordinal = i};
  }
  return count;
}

stplan_status stplan_save_history(const char *path, int rank) {
  stplan_recorded all[STPLAN_DEVICES];
  size_t count = opened(all);
  stplan_status status = STPLAN_OK;
  pthread_mutex_lock(&saving);
  if (path != NULL) {
    status = stplan_history_write(all, count, rank, path);
    for (size_t i = 0; i < count; i++)
      stplan_learn_made(all[i].device);
  } else {
    for (size_t i = 0; i < count; i++)
      stplan_history_end(all[i].device);
  }
  pthread_mutex_unlock(&saving);
  return status;
}

/* Plans that were put in place, or may be: devices refer to them. */
static struct installed {
  struct installed *next;
  stplan_plan *plan;
} *installed;

/* install has the opened devices be served by a plan, and returns what the last one that did
 * not take it says. If the plan has a single device, that serves any one, as at the start. */
static stplan_status install(const stplan_plan *plan) {
  stplan_recorded all[STPLAN_DEVICES];
  size_t count = opened(all);
  stplan_status status = STPLAN_BAD_DEVICE;
  int took = 0;
  for (size_t i = 0; i < count; i++) {
    int own = sp_plan_find(plan, all[i].ordinal) != NULL, only = plan->device_count == 1 && count == 1;
    if (!own && !only)
      continue;
    status = stplan_install(all[i].device, plan, own ? all[i].ordinal : (int)plan->devices[0].ordinal);
    took |= status == STPLAN_OK;
  }
  return took ? STPLAN_OK : status;
}

/* reason says why no device takes a plan. */
static const char *reason(stplan_status status) {
  switch (status) {
  case STPLAN_BAD_PLAN:
    return "it cannot begin in a run: it is of the recorded steps only, or does not pay";
  case STPLAN_BAD_DEVICE:
    return "it is of other devices";
  default:
    return "memory does not move, or the host has none";
  }
}

stplan_status stplan_install_plan(const char *path, char *error, size_t size) {
  struct installed *made = calloc(1, sizeof *made);
  if (made == NULL) {
    snprintf(error, size, "no memory");
    return STPLAN_FAILED;
  }
  stplan_status status = stplan_plan_open(path, &made->plan, error, size);
  if (status != STPLAN_OK) {
    free(made);
    return status;
  }
  pthread_mutex_lock(&saving);
  made->next = installed;
  installed = made;
  pthread_mutex_unlock(&saving);
  status = install(made->plan);
  if (status != STPLAN_OK)
    snprintf(error, size, "%s", reason(status));
  return status;
}
