/* prim.h: what the runtime asks of a device. Everything above this header is
 * plain C that runs anywhere. prim_host.c implements it without a device,
 * prim_cuda.c on the CUDA driver.
 *
 * Every function may be called from any thread, several at a time. None is
 * called while the runtime holds the lock of a device object. Zero is success;
 * anything else is a failure that has changed nothing. Addresses are device
 * addresses, as integers: the runtime never touches what they point to. */
#ifndef STPLAN_PRIM_H
#define STPLAN_PRIM_H

#include <stddef.h>
#include <stdint.h>

/* What event_record_whole answers if the device has no such events. */
enum { SP_NEVER = 2 };

/* Bytes of a handle for other processes, as cudaIpcMemHandle_t has. */
enum { SP_HANDLE_BYTES = 64 };

/* sp_span is bytes at an address. */
typedef struct {
  uint64_t addr, bytes;
} sp_span;

typedef struct sp_prim {
  void *self;

  /* Bytes of the smallest granules, the unit that memory grows in: a power of two, at least 512. */
  uint64_t granularity;

  /* Whether memory is virtual: give_back takes any granules of what extend gave, not only
   * all of one call's, and extend gives memory at an address of the caller's choice. */
  int partial;

  /* Bytes of addresses for a room that is to go on growing: at least what the device has. 0
   * if memory is not virtual. */
  uint64_t span;

  /* extend obtains `bytes` of device memory, a multiple of 512, at *addr. It
   * works while graphs are captured too. If a device gives whole granules, the
   * rest of the last one comes and goes with the bytes.
   *
   * If `at` is 0, they lie at the start of a new room: a range of addresses whose granules
   * have `unit` bytes, a multiple of `granularity`, and begin at multiples of that. There is
   * room for `room` bytes, rounded up to whole granules. If `at` is not 0, the bytes begin at
   * `at`, the start of a granule without memory in a room that has memory in some other
   * granule; anything else is refused, and so is memory beyond the end of a room. No two rooms
   * touch. `room` and `unit` count only if `at` is 0 and `partial` is set. Fails if the device
   * has no memory left.
   *
   * After stop_moving a new room has `room` bytes, and all of them get memory at once, in
   * granules of any size. */
  int (*extend)(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr);

  /* carry is extend at an address, but the first of the bytes get memory that is at other
   * addresses now: `from`, whole granules of rooms whose granules are as large as those at `at`, or, after
   * all of these, the least ones, which are put together.
   * From then on that memory is at both addresses. give_back takes the old addresses, as
   * soon as no stream uses them any more; it takes the memory with the last of its
   * addresses. Streams may use the new ones at once, if they are ordered behind the uses of the
   * old ones. NULL if memory is not virtual. */
  int (*carry)(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans);

  /* give_back returns memory that no stream uses any more to the device. A granule that
   * the device does not take back is lost to both; if it takes none, give_back fails. */
  int (*give_back)(void *self, uint64_t addr, uint64_t bytes);

  /* stop_moving is told that memory which is taken from now on is given back as it came,
   * whole, so that it can be mapped in large granules. NULL if that makes no difference. */
  void (*stop_moving)(void *self);

  /* synchronize returns when the device is done with everything that was enqueued. */
  int (*synchronize)(void *self);

  /* Events order streams; they carry no time. event_record puts the event
   * behind what is enqueued on the stream now; recording it again moves it.
   * stream_wait makes what is enqueued on the stream from now on wait for the
   * event as it stands now; the host goes on. */
  int (*event_create)(void *self, void **event);
  void (*event_destroy)(void *self, void *event);
  int (*event_record)(void *self, void *event, uint64_t stream);
  int (*stream_wait)(void *self, uint64_t stream, void *event);

  /* event_record_whole puts the event behind what is enqueued now on every stream of
   * the device, also on those that only the program knows. It must not be called while a
   * stream is being captured, since that would break the capture. If it answers
   * SP_NEVER, the device cannot do it, and it must not be called again. NULL if that is
   * known from the beginning. */
  int (*event_record_whole)(void *self, void *event);

  /* event_done says whether everything that the event was put behind is done: 1 if it is, 0 if
   * not yet, -1 if the device does not say, as one that an error has ended never does again. */
  int (*event_done)(void *self, void *event);

  /* capturing is the number of the capture into a graph that the stream takes
   * part in; no other capture has it. 0 if there is none. If the state is
   * unknown, the answer is not 0. */
  uint64_t (*capturing)(void *self, uint64_t stream);

  /* export_handle writes a handle by which another process opens the piece of
   * memory that addr lies in, and the offset of addr in it. NULL if memory is
   * virtual, or cannot be shared. */
  int (*export_handle)(void *self, uint64_t addr, unsigned char handle[SP_HANDLE_BYTES], uint64_t *offset);

  /* granule_at is the granule that addr lies in, which has memory. NULL if memory is not
   * virtual. */
  int (*granule_at)(void *self, uint64_t addr, uint64_t *base, uint64_t *size);

  /* export_granule opens a file by which another process maps the granule that begins
   * at addr. NULL if memory is not virtual, or its granules cannot be shared. */
  int (*export_granule)(void *self, uint64_t addr, int *file);

  /* room is how many bytes the device has free, for this process and others. */
  int (*room)(void *self, uint64_t *bytes);

  /* allow_peer lets another device, by its ordinal, use all memory, present and future,
   * that the driver does not let it use anyway. NULL if there is no other device. */
  int (*allow_peer)(void *self, int ordinal);

  void (*close)(void *self);
} sp_prim;

#endif
