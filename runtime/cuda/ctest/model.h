/* model.h: device primitives that check the order of uses. They are those of the host,
 * with a vector clock for each stream, and for each unit of memory the last use by each
 * stream that the runtime was told of, and all that any stream had been given when the
 * unit was freed: a program may let any stream read what it frees, and not say so. */
#ifndef STPLAN_MODEL_H
#define STPLAN_MODEL_H

#include "../prim_host.h"

/* Blocks are multiples of a unit, so that all addresses are. */
enum { MODEL_STREAMS = 12, MODEL_UNIT = 4096 };

/* Streams with the ones that the program keeps to itself: the runtime is never told of
 * them. MODEL_LINK is the one that exchanges with other processes run on. */
enum { MODEL_HIDDEN = 3, MODEL_ALL = MODEL_STREAMS + MODEL_HIDDEN, MODEL_LINK = MODEL_ALL - 1 };

typedef struct model model;

typedef struct {
  uint64_t base, capacity, granularity;
  uint64_t failures; /* one call in this many fails; 0: none */
  int known_only;    /* no events of the whole device, and what hidden streams do does not count */
} model_options;

/* model_open makes primitives, and the model behind them. The model lives until
 * model_close, which demands that everything has been given back. */
model *model_open(const model_options *options, sp_prim *prim);
void model_close(model *m);

/* model_carried is how often memory went to other addresses while it stayed at the old ones. */
long model_carried(const model *m);

/* A stream's handle, by its number. */
uint64_t model_handle(int stream);

/* model_begin has a stream use a block from now on. It demands that nobody has the
 * block, that all uses that the runtime was told of are ordered before, and, unless the
 * block before was the same stream's, everything that any stream had been given when
 * that was freed. model_meet
 * notes that the runtime knows a stream; so does model_begin. model_work gives a stream,
 * hidden or not, something to do; it may be a
 * late read of anything. model_follow has
 * `stream` use a block of stream `own`, ordered behind what that has done.
 * model_end has the streams of a mask end their uses. */
void model_begin(model *m, int stream, uint64_t address, uint64_t size);
void model_meet(model *m, int stream);
void model_work(model *m, int stream);
void model_follow(model *m, int stream, int own);
void model_end(model *m, uint64_t streams, uint64_t address, uint64_t size);

/* model_capture has a stream be captured from now on, or no longer. */
void model_capture(model *m, int stream, int captured);

/* model_exchange enqueues an exchange on MODEL_LINK that is over at the second call. From
 * then on, whether the runtime has been told or not, no stream may be made to wait for it, unless
 * the program itself has done so (model_follow). */
void model_exchange(model *m, int begins);

/* model_hold forbids the runtime to wait for the device or to give memory back. */
void model_hold(model *m, int held);

#endif
