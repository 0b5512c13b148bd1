/* device_history.c: begins, ends and writes the history of a device object, and says when. */
#include "device_history.h"

#include <stdlib.h>

#include "history_file.h"

void sp_device_history_room(stplan_device *d) {
  if (d->history == NULL || !sp_history_short(d->history))
    return;
  sp_device_unlock(d);
  sp_history_chunk *chunk = sp_history_chunk_make();
  sp_device_lock(d);
  if (d->history != NULL)
    sp_history_add(d->history, chunk);
  else
    free(chunk);
}

void sp_device_history_exchange(stplan_device *d, uint64_t exchange) {
  if (d->history != NULL && exchange != 0)
    sp_history_exchange(d->history);
}

/* Since the history began it has the exchanges that the streams count. */
void sp_device_history_await(stplan_device *d, uint64_t exchange, int stream) {
  if (d->history == NULL)
    return;
  uint64_t since = sp_streams_since(&d->streams, exchange);
  if (since < d->history->exchanges)
    sp_history_await(d->history, d->history->exchanges - since, (uint32_t)stream);
}

stplan_status stplan_history_begin(stplan_device *d, uint64_t most) {
  sp_history *made = calloc(1, sizeof *made);
  if (made == NULL)
    return STPLAN_FAILED;
  made->most = most / sizeof(sp_history_chunk);
  sp_device_lock(d);
  int early = d->history == NULL && d->counters.allocations == 0 && made->most > 0;
  if (early)
    d->history = made;
  sp_device_unlock(d);
  if (!early)
    free(made);
  return early ? STPLAN_OK : STPLAN_FAILED;
}

void stplan_history_end(stplan_device *d) {
  sp_device_lock(d);
  sp_history *ended = d->history;
  d->history = NULL;
  sp_device_unlock(d);
  if (ended != NULL)
    sp_history_close(ended);
  free(ended);
}

void stplan_history_step(stplan_device *d, unsigned optimizer) {
  sp_device_lock(d);
  sp_device_history_room(d);
  if (d->history != NULL)
    sp_history_mark(d->history, optimizer < STPLAN_OPTIMIZERS ? optimizer + 1 : STPLAN_OPTIMIZERS);
  sp_device_unlock(d);
}

int stplan_learn_due(stplan_device *d, unsigned first, int ending) {
  sp_device_lock(d);
  if (!ending)
    sp_learn_iteration(&d->learn, &d->counters);
  /* A run that ran out of memory ends with what its plan, or the lack of one, did not foresee. */
  const sp_history *h = d->history;
  int due = h != NULL && !h->full && ((ending && h->failed) || sp_learn_due(&d->learn, &d->counters, first, ending));
  sp_device_unlock(d);
  return due;
}

void stplan_learn_made(stplan_device *d) {
  sp_device_lock(d);
  sp_learn_made(&d->learn);
  sp_device_unlock(d);
}

/* part_of is the device's part of a file, and whether it has one. What it refers to stays
 * as it is while requests go on: records are only ever added behind it. */
static int part_of(const stplan_recorded *of, sp_history_part *part) {
  stplan_device *d = of->device;
  sp_device_lock(d);
  const sp_history *h = d->history;
  int some = h != NULL && h->allocations > 0;
  if (some) {
    *part = (sp_history_part){.ordinal = (uint32_t)of->ordinal, .stopped = h->full, .length = h->length, .first = h->first,
                              .last = h->last, .last_used = h->last->used,
                              .records = h->records, .allocations = h->allocations, .streams = (uint32_t)d->streams.count};
    for (int i = 0; i < d->streams.count; i++)
      part->handles[i] = d->streams.list[i]->handle;
  }
  sp_device_unlock(d);
  return some;
}

stplan_status stplan_history_write(const stplan_recorded *devices, size_t count, int rank, const char *path) {
  sp_history_part *parts = calloc(count + 1, sizeof *parts);
  size_t found = 0;
  if (parts == NULL)
    return STPLAN_FAILED;
  for (size_t i = 0; i < count; i++)
    found += (size_t)part_of(&devices[i], &parts[found]);
  int written = found == 0 || sp_history_file_write(path, rank, parts, found) == 0;
  free(parts);
  return written ? STPLAN_OK : STPLAN_FAILED;
}
