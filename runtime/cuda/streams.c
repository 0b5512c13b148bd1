#include "streams.h"

#include <stdlib.h>

void sp_clock_set(sp_clock *c, int stream, uint64_t tick) {
  if (stream < SP_CLOCK) {
    if (tick > c->tick[stream])
      c->tick[stream] = tick;
    return;
  }
  c->rest_mask |= UINT64_C(1) << stream;
  if (tick > c->rest_tick)
    c->rest_tick = tick;
}

void sp_clock_merge(sp_clock *into, const sp_clock *from) {
  for (int i = 0; i < SP_CLOCK; i++)
    if (from->tick[i] > into->tick[i])
      into->tick[i] = from->tick[i];
  into->rest_mask |= from->rest_mask;
  if (from->rest_tick > into->rest_tick)
    into->rest_tick = from->rest_tick;
}

uint64_t sp_clock_of(const sp_clock *c, int stream) {
  if (stream < SP_CLOCK)
    return c->tick[stream];
  return c->rest_mask >> stream & 1 ? c->rest_tick : 0;
}

int sp_streams_find(const sp_streams *s, uint64_t handle) {
  for (int i = 0; i < s->count; i++)
    if (s->list[i]->handle == handle)
      return i;
  return -1;
}

sp_stream *sp_stream_make(const sp_prim *p, uint64_t handle) {
  sp_stream *made = calloc(1, sizeof *made);
  if (made == NULL)
    return NULL;
  made->handle = handle;
  for (int i = 0; i < SP_STREAM_EVENTS; i++)
    if (p->event_create(p->self, &made->marks[i].event) != 0) {
      made->marks[i].event = NULL;
      sp_stream_drop(p, made);
      return NULL;
    }
  if (!p->capturing(p->self, handle) && p->event_record(p->self, made->marks[0].event, handle) != 0) {
    sp_stream_drop(p, made);
    return NULL;
  }
  return made;
}

void sp_stream_drop(const sp_prim *p, sp_stream *stream) {
  for (int i = 0; i < SP_STREAM_EVENTS; i++)
    if (stream->marks[i].event != NULL)
      p->event_destroy(p->self, stream->marks[i].event);
  free(stream);
}

int sp_streams_waits(const sp_streams *s, const sp_clock *c, int stream) {
  const uint64_t *waited = s->list[stream]->waited;
  for (int i = 0; i < s->count; i++)
    if (i != stream && sp_clock_of(c, i) > waited[i])
      return 1;
  return 0;
}

/* covering is the oldest mark that covers a tick, or -1: the older, the less
 * the device waits for. */
static int covering(const sp_stream *stream, uint64_t tick) {
  int best = -1;
  for (int i = 0; i < SP_STREAM_EVENTS; i++) {
    const sp_mark *m = &stream->marks[i];
    if (!m->busy && m->tick >= tick && (best < 0 || m->tick < stream->marks[best].tick))
      best = i;
  }
  return best;
}

int sp_streams_reserve(sp_streams *s, int stream, sp_need *need) {
  sp_stream *of = s->list[stream];
  for (int i = 0; i < SP_STREAM_EVENTS; i++) {
    int k = (of->next + i) % SP_STREAM_EVENTS;
    if (of->marks[k].busy || of->marks[k].awaited > 0)
      continue;
    of->next = (k + 1) % SP_STREAM_EVENTS;
    of->marks[k].busy = 1;
    *need = (sp_need){.on = stream, .mark = k, .record = 1, .tick = s->now};
    return 1;
  }
  return 0;
}

int sp_streams_needs(sp_streams *s, const sp_clock *c, int stream, sp_need needs[SP_STREAMS]) {
  const uint64_t *waited = s->list[stream]->waited;
  int count = 0;
  for (int i = 0; i < s->count; i++) {
    uint64_t tick = sp_clock_of(c, i);
    if (i == stream || tick <= waited[i])
      continue;
    int mark = covering(s->list[i], tick);
    if (mark >= 0) {
      s->list[i]->marks[mark].awaited++;
      needs[count++] = (sp_need){.on = i, .mark = mark, .tick = s->list[i]->marks[mark].tick};
    } else if (sp_streams_reserve(s, i, &needs[count])) {
      count++;
    } else {
      sp_streams_settle(s, stream, needs, count, 0);
      return -1;
    }
  }
  return count;
}

int sp_streams_record(const sp_streams *s, const sp_prim *p, const sp_need *need) {
  const sp_stream *on = s->list[need->on];
  return !p->capturing(p->self, on->handle) && p->event_record(p->self, on->marks[need->mark].event, on->handle) == 0 &&
         !p->capturing(p->self, on->handle);
}

int sp_streams_perform(const sp_streams *s, const sp_prim *p, int stream, const sp_need *needs, int count) {
  uint64_t handle = s->list[stream]->handle;
  if (p->capturing(p->self, handle))
    return 1;
  for (int i = 0; i < count; i++) {
    if (needs[i].record && !sp_streams_record(s, p, &needs[i]))
      return 1;
    if (p->stream_wait(p->self, handle, s->list[needs[i].on]->marks[needs[i].mark].event) != 0)
      return 1;
  }
  return 0;
}

void sp_streams_settle(sp_streams *s, int stream, const sp_need *needs, int count, int performed) {
  for (int i = 0; i < count; i++) {
    sp_mark *m = &s->list[needs[i].on]->marks[needs[i].mark];
    if (needs[i].record) {
      m->busy = 0;
      m->tick = performed ? needs[i].tick : 0;
    } else {
      m->awaited--;
    }
    if (performed && stream >= 0 && needs[i].tick > s->list[stream]->waited[needs[i].on])
      s->list[stream]->waited[needs[i].on] = needs[i].tick;
  }
}
