/* process_history.c: the history of a process, which is that of all its devices. */
#include <pthread.h>

#include "process.h"

/* Held while histories are written and ended. */
static pthread_mutex_t saving = PTHREAD_MUTEX_INITIALIZER;

void stplan_step(unsigned optimizer) {
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = stplan_opened(i);
    if (d != NULL)
      stplan_history_step(d, optimizer);
  }
}

stplan_status stplan_save_history(const char *path, int rank) {
  stplan_recorded all[STPLAN_DEVICES];
  size_t count = 0;
  for (int i = 0; i < STPLAN_DEVICES; i++) {
    stplan_device *d = stplan_opened(i);
    if (d != NULL)
      all[count++] = (stplan_recorded){.device = d, .ordinal = i};
  }
  pthread_mutex_lock(&saving);
  stplan_status status = path == NULL ? STPLAN_OK : stplan_history_write(all, count, rank, path);
  for (size_t i = 0; i < count; i++)
    stplan_history_end(all[i].device);
  pthread_mutex_unlock(&saving);
  return status;
}
