/* prim.h: what the runtime asks of a device. Everything above this header is
 * plain C that runs anywhere; prim_host.c implements it without a device,
 * prim_cuda.c on the CUDA driver.
 *
 * Every function may be called from any thread, several at a time, and is never
 * called while the runtime holds its lock. Zero is success; anything else is a
 * failure that left nothing changed. Addresses are device addresses, as
 * integers: the runtime never touches what they point to. */
#ifndef STPLAN_PRIM_H
#define STPLAN_PRIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct sp_prim {
  void *self;

  /* Bytes that growth comes in: a power of two, at least 512. */
  uint64_t granularity;

  /* Whether give_back takes any granules of what extend gave, not only all of
   * one call's. */
  int partial;

  /* extend obtains `bytes`, a multiple of 512, of device memory; what a device
   * has to give beyond that to the next granule comes and goes with them. It
   * begins at `at` where that is the end of what earlier calls gave in one piece
   * and have not taken back, and if it can; otherwise anywhere. Fails where the
   * device has no memory left. */
  int (*extend)(void *self, uint64_t at, uint64_t bytes, uint64_t *addr);

  /* give_back returns memory that no stream uses any more. */
  int (*give_back)(void *self, uint64_t addr, uint64_t bytes);

  /* synchronize returns when the device is done with all that was enqueued. */
  int (*synchronize)(void *self);

  /* Events order streams; they carry no time. record puts the event behind
   * what the stream has to do now; a later record moves it. wait makes what is
   * enqueued on the stream from now on wait for the event as it stands now;
   * the host goes on. */
  int (*event_create)(void *self, void **event);
  void (*event_destroy)(void *self, void *event);
  int (*event_record)(void *self, void *event, uint64_t stream);
  int (*stream_wait)(void *self, uint64_t stream, void *event);

  /* capturing says whether the stream is being captured into a graph; an
   * unknown state counts as capturing. */
  int (*capturing)(void *self, uint64_t stream);

  void (*close)(void *self);
} sp_prim;

#endif
