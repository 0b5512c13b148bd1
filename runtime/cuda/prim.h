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

enum { SP_HANDLE_BYTES = 64 };

typedef struct sp_prim {
  void *self;

  /* Bytes that growth comes in: a power of two, at least 512. */
  uint64_t granularity;

  /* Whether give_back takes any granules of what extend gave, not only all of
   * one call's, and extend gives memory at a place of its caller's choice. */
  int partial;

  /* extend obtains `bytes`, a multiple of 512, of device memory, also while
   * graphs are captured; what a device has to give beyond that to the next
   * granule comes and goes with them. With `at` 0 they lie anywhere, in a room of
   * addresses for all the memory that the device has, and for `room` bytes at
   * least. Otherwise they begin at `at`, the start of a granule in such a room that
   * has none, where some other of its granules has; it is refused elsewhere, and so
   * at the end of a room: no two touch. Fails where the device has no memory left.
   * room counts only with `at` 0, and only where `partial` is set. */
  int (*extend)(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t *addr);

  /* give_back returns memory that no stream uses any more. A granule that the
   * device does not take is lost to both, unless it takes none: then it fails. */
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

  /* capturing is the capture into a graph that the stream takes part in, a
   * number that no other has; 0 without one. An unknown state counts as one of
   * its own. */
  uint64_t (*capturing)(void *self, uint64_t stream);

  /* export_handle writes what another process opens memory by that came in one
   * piece, and how far addr lies behind its first byte. NULL where no memory does. */
  int (*export_handle)(void *self, uint64_t addr, unsigned char handle[SP_HANDLE_BYTES], uint64_t *offset);

  /* export_granule opens a file by which another process maps the granule that
   * begins at addr. NULL where memory comes in no granules, or they cannot be
   * shared. */
  int (*export_granule)(void *self, uint64_t addr, int *file);

  /* allow_peer lets another device, by its ordinal, use all memory, now and
   * later, that the driver does not let it use anyway. NULL where there is none. */
  int (*allow_peer)(void *self, int ordinal);

  void (*close)(void *self);
} sp_prim;

#endif
