/* stplan.h: the interface of the runtime, which serves device memory by a plan,
 * or without one from one pool.
 *
 * Threads. Every function may be called from any thread at any time, except
 * stplan_open and stplan_close, which must not overlap with other calls for the
 * same device object. Each device object has one lock. It is held for bounded
 * work only, never across a call of the driver.
 *
 * Streams. Memory is handed out in stream order. What stplan_malloc returns may be
 * used at once by work enqueued on `stream`. Another stream may use it after
 * stplan_record_stream has been told, ordered behind `stream` by the caller. Freed
 * memory may be reused at once: if the new owner's stream is not ordered behind
 * everything that used the memory, the runtime makes it wait on the device, and
 * the host goes on. So a stream that was handed to any of these functions has to
 * stay valid, and work that uses a block has to be enqueued before its free.
 *
 * Capture. A stream that is being captured into a graph must not be used here: a
 * graph replays its addresses for as long as it lives, and nobody says how long
 * that is. The caller serves it elsewhere. Blocks may be freed during a capture.
 *
 * Addresses. If memory is virtual, what is idle may be given back and other memory be taken
 * at the same addresses: nobody who registers memory by its address may know that of a
 * block that has been freed. stplan_pin keeps the memory of one block, stplan_stop_moving all.
 *
 * Fork. A child that calls none of these functions is unharmed: there are no
 * threads and no fork handlers. */
#ifndef STPLAN_H
#define STPLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of stplan. It stands here only: the command line and the Python package
 * read this line. */
#define STPLAN_VERSION "0.1.0"

struct sp_prim;

typedef struct stplan_device stplan_device;
typedef struct stplan_plan stplan_plan;

/* A stream as the driver knows it: a cudaStream_t cast to an integer. */
typedef uint64_t stplan_stream;

/* What a function returns. */
typedef enum {
  STPLAN_OK = 0,
  STPLAN_NO_MEMORY,   /* the device or the limit has none left, although all idle memory was given back */
  STPLAN_BAD_POINTER, /* not a live block of this device: foreign, or freed before */
  STPLAN_BAD_STREAM,  /* the 65th stream, or one that takes no events of this device */
  STPLAN_BAD_PLAN,    /* stplan_plan_error says what is wrong */
  STPLAN_BAD_DEVICE,  /* the plan has no such device */
  STPLAN_FAILED,      /* the system refused a file or memory of the host, or the device does not answer */
  STPLAN_HELD         /* stplan_hold keeps memory from being given back */
} stplan_status;

/* Where a block came from. */
typedef enum {
  STPLAN_FROM_PLAN, /* memory of the plan: this request's place, or bytes that no step needs while it lives */
  STPLAN_FROM_GAP,  /* free memory that the device had given before */
  STPLAN_FROM_GROW  /* memory taken from the device for this request */
} stplan_source;

/* How the plan is doing; docs/runtime.md draws the machine. */
typedef enum {
  STPLAN_NO_PLAN = 0,
  STPLAN_PROLOGUE, /* before the steady state, or anywhere in a recorded plan */
  STPLAN_BODY,     /* in a steady iteration */
  STPLAN_ENDED,    /* a recorded plan has been served to its end */
  STPLAN_OFF,      /* suspended, as it does not fit this run at present, or given up for good */
  STPLAN_DECLINED  /* not served at all: the plan itself says that it does not pay */
} stplan_state;

/* Counters of one device. Bytes are those that blocks occupy: requests rounded
 * up to 512. Sums are over the life of the device object. The fields keep their
 * order and new ones come last; `fields` says how many there are. */
typedef struct {
  uint64_t fields;
  uint64_t state; /* stplan_state */
  uint64_t allocated_bytes, peak_allocated_bytes;
  uint64_t reserved_bytes, peak_reserved_bytes;
  uint64_t allocations, allocation_bytes;
  uint64_t planned_allocations, planned_bytes;
  uint64_t frees;
  uint64_t refused_frees;      /* double and foreign ones */
  uint64_t failed_allocations; /* requests that got no memory */
  uint64_t growths;            /* times that the device gave memory */
  uint64_t clashes;            /* planned places that were taken */
  uint64_t drift_events;       /* times that the run left the plan's sequence */
  uint64_t resyncs;            /* times that it was found again elsewhere in it */
  uint64_t waits;              /* times that one stream was made to wait for another */
  uint64_t events_recorded;
  uint64_t moved_bytes; /* given back where they were idle, to be taken where they are needed */
  uint64_t displaced_allocations; /* of the planned ones, those whose own place was taken */
  uint64_t installs; /* plans that were put in place while the run went on (stplan_install) */
  /* The plan that the run has followed last, by its checksum; 0: none. It is the one that it is
   * served by, or one that comes in the run and has followed that for a pass. Then the bytes
   * asked for since the plan is followed, and how many of them were on plan, or would have been. */
  uint64_t followed_plan, followed_bytes, fitting_bytes;
  uint64_t plan_granule_bytes; /* of a granule of the plan's memory; 0 before it has any */
} stplan_counters;

/* One quantity: how much there is now, the most there has been, and all that
 * was ever added and taken away. */
typedef struct {
  uint64_t current, peak, added, removed;
} stplan_stat;

/* Live blocks: their number, the bytes that they occupy, and the bytes that were requested. */
typedef struct {
  stplan_stat blocks, bytes, requested;
} stplan_usage;

/* What is in use. Peaks are since the last stplan_reset_peaks, and of the sums with what
 * stplan_beside was told. added and removed count since the last stplan_reset_sums. */
typedef struct {
  stplan_usage all, small, large; /* small: blocks in memory that is for blocks of up to 256 KiB alone */
  stplan_stat reserved; /* bytes */
  stplan_stat extents;  /* pieces of address space that they lie in */
  stplan_stat small_reserved, small_extents; /* those of small blocks, among them */
} stplan_statistics;

/* A range of memory: a live block, or a free range. Addresses between ranges
 * have no memory. A block may be 512 bytes larger than its request rounded up to 512,
 * which is what counters and statistics count. */
typedef struct {
  uint64_t address, size;
  uint64_t requested; /* bytes; 0 for a free range */
  stplan_stream stream; /* a block's own */
  uint32_t live;
  uint32_t first; /* starts a piece of memory */
  uint32_t small; /* memory for small blocks alone; all of a piece is, or none */
} stplan_range;

/* stplan_plan_parse reads a plan from memory, which has to outlive it. stplan_plan_open
 * reads a file into memory of its own, so the file may change or go afterwards; a
 * mapping would change with it, after the checks, or end the process. Both check every
 * rule of docs/planfile.md. On failure *plan is NULL, and error, a buffer of `size`
 * bytes, says what is wrong: the class of the error, a colon, and the rule; for a file
 * that cannot be read, the system's reason. The caller adds the path. */
stplan_status stplan_plan_parse(const void *data, size_t length, stplan_plan **plan, char *error, size_t size);
stplan_status stplan_plan_open(const char *path, stplan_plan **plan, char *error, size_t size);
void stplan_plan_close(stplan_plan *plan);

/* stplan_open makes a device object on these primitives. If it succeeds, the
 * object owns them and closes them in the end. plan may be NULL; otherwise it
 * has to outlive the object, and ordinal picks the device in it. Nothing is
 * taken from the device before the first stplan_malloc. */
stplan_status stplan_open(const struct sp_prim *prim, const stplan_plan *plan, int ordinal, stplan_device **device);

/* stplan_prove tells of a device object that has been opened, before the first stplan_malloc,
 * that an earlier run has followed the plan with this checksum (docs/planfile.md). If that is
 * the plan of the object, its memory may come in larger granules, which takes the driver less
 * time; another checksum, or 0, changes nothing. If the run does not follow the plan it may
 * reserve more (docs/results/proven.md). */
void stplan_prove(stplan_device *d, uint64_t checksum);

/* stplan_install has a plan serve a run that goes on already: from the beginning of one of its
 * steady iterations on, once most of the iteration before could have been served by it. What
 * is live then stays where it is. Until then everything goes on as before, and for good if it
 * never fits. A plan that was served or awaited before is left. plan has to outlive the device
 * object, and ordinal picks the device in it. STPLAN_BAD_PLAN if the plan cannot begin in a
 * run: it is not periodic, or says that it does not pay; STPLAN_FAILED if memory does not move,
 * as the plan would take memory beside the pool's. May be called while requests go on. */
stplan_status stplan_install(stplan_device *d, const stplan_plan *plan, int ordinal);

/* stplan_close waits for the device and gives all memory back. */
void stplan_close(stplan_device *d);

/* stplan_malloc returns the device address of `size` bytes, a multiple of 512. It returns
 * 0 if size is 0, and if it fails; *status says why. status and source may be NULL. */
uint64_t stplan_malloc(stplan_device *d, size_t size, stplan_stream stream, stplan_source *source, stplan_status *status);

/* stplan_free gives a block back. stream is the one that used it last; if that
 * is not the block's own, it counts as recorded. */
stplan_status stplan_free(stplan_device *d, uint64_t address, stplan_stream stream);

/* stplan_release gives a block back that was used on its own stream and on those
 * recorded. *block says what it was; block may be NULL. A foreign pointer is
 * refused and not counted, so callers who also serve from elsewhere may try. */
stplan_status stplan_release(stplan_device *d, uint64_t address, stplan_range *block);

/* stplan_find describes the live block at address. */
stplan_status stplan_find(stplan_device *d, uint64_t address, stplan_range *block);

/* stplan_extent is the piece of memory that the live block at address lies in. */
stplan_status stplan_extent(stplan_device *d, uint64_t address, uint64_t *base, uint64_t *size);

/* stplan_record_stream is told that stream uses the block as well: the memory is reused
 * only behind what has been enqueued on stream by the time the block is freed. */
stplan_status stplan_record_stream(stplan_device *d, uint64_t address, stplan_stream stream);

/* stplan_exchange_begins is told that an exchange with another process is about to be
 * enqueued, a receive for instance, which is done only when the other process has done its
 * part. Until then no stream is made to wait for what is enqueued from now on, and neither
 * is the host: if every process waited for its receive before it sends, all of them
 * would wait for ever. Collectives, which all processes enqueue in the same order,
 * need not be told. It returns a number for the functions below, or 0 if exchanges cannot be
 * followed: drivers before 12.5 have no events of the whole device.
 *
 * stplan_exchange_enqueued is told, on any thread, that the call has returned which was to
 * enqueue the exchange of this number, also if it failed: once for each number. It does
 * nothing for the number 0. An exchange of which it is never told is under way for ever. That
 * makes nobody wait: memory that others than its own stream used comes back later, once the device
 * has done all that it was given before some later event. */
uint64_t stplan_exchange_begins(stplan_device *d);
void stplan_exchange_enqueued(stplan_device *d, uint64_t exchange);

/* stplan_exchange_awaited is told that the program has made a stream wait for an exchange,
 * by its number. From then on the stream may be made to wait for what was enqueued after
 * that exchange too. It does nothing if the exchange is over, or before
 * stplan_exchange_enqueued is told of it; nor for the number 0, or an exchange that is
 * not told apart from others, of which there are too many. */
void stplan_exchange_awaited(stplan_device *d, uint64_t exchange, stplan_stream stream);

/* stplan_mark is told that a step of the program begins here. It is never
 * needed; after drift it helps to find the place in the plan sooner. */
void stplan_mark(stplan_device *d);

/* stplan_stop_moving has memory stay where it is from now on: none is given back to be
 * taken elsewhere, and no address without memory gets any. Memory comes in whole pieces, in
 * large handles, and goes in whole pieces, by stplan_empty_cache or if the device or the
 * limit has none left. What the plan lacks is taken now, if it is worth that. */
void stplan_stop_moving(stplan_device *d);

/* stplan_moves says whether granules come and go: memory is virtual, and stplan_stop_moving
 * has not been called. Otherwise each piece that stplan_ranges lists came in one. */
int stplan_moves(stplan_device *d);

/* stplan_pin keeps the physical memory of [address, address+size) where it is, also after
 * the block is freed, until stplan_unpin is called with the same numbers as often. The bytes
 * have to be of one live block; otherwise the answer is STPLAN_BAD_POINTER, as if there is
 * no such pin. Freed memory that is pinned serves other requests. */
stplan_status stplan_pin(stplan_device *d, uint64_t address, uint64_t size);
stplan_status stplan_unpin(stplan_device *d, uint64_t address, uint64_t size);
/* A history is what a device object was asked for, in order: allocations with the bytes
 * requested and their stream, frees, uses by other streams, marks, and requests that got no memory,
 * in a few bytes each (docs/history.md). A plan can be made of it as of a recording.
 *
 * stplan_history_begin keeps one from now on, in at most `most` bytes of the host; when
 * they are full nothing more is noted. Fails if something was allocated before, and if
 * `most` has no room for a chunk of 64 KiB. It calls no driver, but for what the device has free when a
 * request gets no memory, and no memory is taken with the lock held. stplan_history_end forgets the history, and nothing is noted from then on.
 *
 * stplan_history_step notes that a step of an optimizer has ended; optimizers are numbered
 * from 0, and all from STPLAN_OPTIMIZERS - 1 on count as one.
 *
 * stplan_history_write writes the histories of some devices of this process, in ascending
 * order of their ordinals, to one file: under the path with ".tmp" behind it, which is
 * renamed when it is whole. Devices without an allocation are left out; no file is written
 * if none is left. rank is the process's, or -1. Requests may go on meanwhile; the end of
 * a history may not come meanwhile.
 *
 * stplan_learn_due is told that an iteration of the program has ended, or that the run is
 * `ending`, and says whether the history is to be written now, for a plan to be made of it:
 * after the `first` iterations, and again if later ones go beyond the plan (device_learn.h); also if the run
 * is ending since a request got no memory.
 * stplan_learn_made is told that it was written. */
enum { STPLAN_OPTIMIZERS = 255 };
typedef struct {
  stplan_device *device;
  int ordinal;
} stplan_recorded;
stplan_status stplan_history_begin(stplan_device *d, uint64_t most);
void stplan_history_end(stplan_device *d);
void stplan_history_step(stplan_device *d, unsigned optimizer);
int stplan_learn_due(stplan_device *d, unsigned first, int ending);
void stplan_learn_made(stplan_device *d);
stplan_status stplan_history_write(const stplan_recorded *devices, size_t count, int rank, const char *path);

/* stplan_pause gives idle memory back to the device, the plan's too, for another allocator or
 * process, and says how much. It waits for everything that the device was given, on any
 * stream. Live blocks, pinned memory and the plan stay; stplan_survey says how much of each.
 * Requests go on: they take what they need from the device again, at the plan's places too.
 * Nobody keeps the memory for this process meanwhile. If it is gone, requests fail with
 * STPLAN_NO_MEMORY once all other idle memory has been used, and the plan stays, for what is
 * to come back.
 *
 * STPLAN_HELD if stplan_hold is in the way, STPLAN_FAILED if the device cannot be waited for
 * or does not take all of it back. Whatever is not given is there as before. */
stplan_status stplan_pause(stplan_device *d, uint64_t *given);

/* stplan_resume takes memory back that stplan_pause gave, up to `bytes`, so that requests need
 * not. It takes no more than was reserved before. STPLAN_NO_MEMORY if the device or the limit
 * has less than that left: *taken is what it took, and requests take the rest as they need
 * it. Memory that is plain, or does not move, is taken by requests only. It may be called
 * while a graph is captured. */
stplan_status stplan_resume(stplan_device *d, uint64_t bytes, uint64_t *taken);

/* Where reserved memory is, in bytes, as far as stplan_pause is concerned. All but `given`
 * add up to what is reserved. */
typedef struct {
  uint64_t given;  /* by stplan_pause, and neither taken back since nor made up for by other memory */
  uint64_t idle;   /* stplan_pause would give it */
  uint64_t live;   /* in blocks */
  uint64_t beside; /* free, in granules that blocks lie in as well; of plain memory, or if nothing moves, in pieces; or not to be used before an exchange is over */
  uint64_t pinned; /* free, in granules or pieces that stplan_pin has pinned */
  uint64_t plan;   /* free, of the plan: what keeps its addresses, or all if it does not move */
} stplan_memory;
void stplan_survey(stplan_device *d, stplan_memory *memory);

/* stplan_empty_cache is stplan_pause, and returns the bytes given. */
uint64_t stplan_empty_cache(stplan_device *d);

/* stplan_hold keeps all device objects of the process from waiting for a device and from
 * giving memory back, until it has been called with 0 as often as with 1: while a graph is
 * captured, which may have streams of several devices, a device cannot be waited for. It
 * waits for threads that are giving memory back. */
void stplan_hold(int hold);

/* stplan_keep has one device object never give memory back before it is closed. */
void stplan_keep(stplan_device *d);

/* stplan_largest is the size of the largest free range, in bytes; 0 if there is none. */
uint64_t stplan_largest(stplan_device *d);

/* stplan_set_limit bounds reserved bytes; 0 is no limit. What is reserved already stays. */
void stplan_set_limit(stplan_device *d, uint64_t bytes);

void stplan_read(stplan_device *d, stplan_counters *counters);

void stplan_measure(stplan_device *d, stplan_statistics *statistics);
void stplan_reset_peaks(stplan_device *d);
void stplan_reset_sums(stplan_device *d);

/* stplan_beside is told how much another allocator of the same program holds:
 * the `current` of each quantity. Peaks are of the sums from then on. */
void stplan_beside(stplan_device *d, const stplan_statistics *other);

/* stplan_ranges lists all memory by address. It writes up to `room` ranges and
 * returns how many there are. */
size_t stplan_ranges(stplan_device *d, stplan_range *ranges, size_t room);

/* What stplan_watch tells. Granules of memory that moves were mapped, or have been unmapped.
 * Of other memory a whole piece was taken, or is about to be given back: it is still there.
 * If the device then does not take it back, it is told as taken again. */
typedef enum { STPLAN_UNMAPPED, STPLAN_MAPPED, STPLAN_PIECE_FREED, STPLAN_PIECE_TAKEN } stplan_event;

/* stplan_watch has `seen` called from now on when memory is taken from the device or given
 * back. It is called on the thread that needs the memory, without the device object's lock,
 * one call at a time. It has to return, must throw no exception, and must not call this
 * device object: a lock is held, and meanwhile no other thread gets the addresses. */
typedef void stplan_seen(void *context, stplan_event event, uint64_t address, uint64_t size);
void stplan_watch(stplan_device *d, stplan_seen *seen, void *context);

/* stplan_export writes a handle by which another process opens the block's
 * memory, as cudaIpcGetMemHandle makes it, and the block's offset in that
 * memory. STPLAN_FAILED for virtual memory. */
stplan_status stplan_export(stplan_device *d, uint64_t address, unsigned char handle[64], uint64_t *offset);

/* stplan_granule is the piece of virtual memory, mapped in one, that a byte of a live block
 * lies in. STPLAN_FAILED for plain memory. */
stplan_status stplan_granule(const stplan_device *d, uint64_t address, uint64_t *base, uint64_t *size);

/* stplan_export_granule opens a file by which another process maps the granule
 * that begins at address and has to hold bytes of a live block. The caller
 * closes it. STPLAN_FAILED if the granule cannot be shared. Who lets another process use
 * the memory longer than the block lives pins it. */
stplan_status stplan_export_granule(stplan_device *d, uint64_t address, int *file);

/* stplan_allow_peer lets another device, by its ordinal, use this one's memory
 * as well, if the program has enabled that for plain memory. */
stplan_status stplan_allow_peer(stplan_device *d, int ordinal);

/* stplan_share keeps a copy of the counters in a file from now on, as they are
 * in memory, so that another process can map it and read them, also after any
 * exit. The copy is never read back: what others write there changes nothing. */
stplan_status stplan_share(stplan_device *d, const char *path);

#ifdef __cplusplus
}
#endif

#endif
