/* stplan.h: device memory served by a plan, or by one best-fit pool without.
 *
 * Threads. Every function may be called from any thread at any time, except
 * stplan_open and stplan_close, which must not overlap with other calls for the
 * same device object. One lock for each device object is held for bounded work
 * only, never across a call of the driver.
 *
 * Streams. Memory is handed out in stream order. What stplan_malloc returns may
 * be used at once by work enqueued on `stream`; another stream may use it after
 * stplan_record_stream says so, ordered behind `stream` by the caller. What is
 * freed may be reused at once: where the new owner's stream is not ordered
 * behind all that used the memory, the runtime makes it wait on the device, and
 * the host goes on. So a stream handed to any of these functions has to stay
 * valid, and work that uses a block has to be enqueued before its free.
 *
 * Capture. A stream that is being captured into a graph must not come here: a
 * graph replays its addresses for as long as it lives, and nobody says how long
 * that is. The caller serves it elsewhere. Blocks may be freed during a capture.
 *
 * Fork. A child that calls nothing of this is unharmed: there are no threads
 * and no handlers. */
#ifndef STPLAN_H
#define STPLAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sp_prim;

typedef struct stplan_device stplan_device;
typedef struct stplan_plan stplan_plan;

/* A stream as the driver knows it: a cudaStream_t cast to an integer. */
typedef uint64_t stplan_stream;

/* What a function answers. */
typedef enum {
  STPLAN_OK = 0,
  STPLAN_NO_MEMORY,   /* the device or the limit has none left, all idle memory given back */
  STPLAN_BAD_POINTER, /* not a live block of this device: foreign, or freed before */
  STPLAN_BAD_STREAM,  /* more than 64 streams, or one that takes no events of this device */
  STPLAN_BAD_PLAN,    /* stplan_plan_error says what is wrong */
  STPLAN_BAD_DEVICE,  /* the plan has no such device */
  STPLAN_FAILED       /* the system refused a file or memory of the host */
} stplan_status;

/* Where a block came from. */
typedef enum {
  STPLAN_FROM_PLAN, /* memory of the plan: this request's place, or what no step needs as long as it lives */
  STPLAN_FROM_GAP,  /* free memory that the device had given before */
  STPLAN_FROM_GROW  /* memory taken from the device for this request */
} stplan_source;

/* How the plan is doing; docs/runtime.md draws the machine. */
typedef enum {
  STPLAN_NO_PLAN = 0,
  STPLAN_PROLOGUE, /* before the steady state, or anywhere in a recorded plan */
  STPLAN_BODY,     /* in a steady iteration */
  STPLAN_ENDED,    /* a recorded plan has been served to its end */
  STPLAN_OFF,      /* suspended, as it does not fit this run at present, or given up, as it does not fit the device */
  STPLAN_DECLINED  /* not served at all: the plan itself says that it does not pay */
} stplan_state;

/* Counters of one device. Bytes are what blocks occupy: requests rounded up to
 * 512. Sums are over the life of the device object. The fields keep their order
 * and new ones come last; `fields` says how many there are. */
typedef struct {
  uint64_t fields;
  uint64_t state; /* stplan_state */
  uint64_t allocated_bytes, peak_allocated_bytes;
  uint64_t reserved_bytes, peak_reserved_bytes;
  uint64_t allocations, allocation_bytes;
  uint64_t planned_allocations, planned_bytes;
  uint64_t frees;
  uint64_t refused_frees;      /* double and foreign ones */
  uint64_t failed_allocations; /* answered with NULL */
  uint64_t growths;            /* times that the device was asked for memory */
  uint64_t clashes;            /* planned places that were taken */
  uint64_t drift_events;       /* times that the run left the plan's sequence */
  uint64_t resyncs;            /* times that it was found again elsewhere in it */
  uint64_t waits;              /* one stream made to wait for another */
  uint64_t events_recorded;
  uint64_t moved_bytes; /* given back where they were idle and taken where they were needed */
  uint64_t displaced_allocations; /* of the planned ones, those whose own place was taken */
} stplan_counters;

/* One quantity: how much there is now, its highest, and all that was ever added
 * and taken away. */
typedef struct {
  uint64_t current, peak, added, removed;
} stplan_stat;

/* Live blocks: their number, the bytes that they occupy and those asked for. */
typedef struct {
  stplan_stat blocks, bytes, requested;
} stplan_usage;

/* What is in use. Peaks are those since the last stplan_reset_peaks, of the sums
 * with what stplan_beside tells of; added and removed count since the last
 * stplan_reset_sums. */
typedef struct {
  stplan_usage all, small, large; /* small: blocks of up to 1 MiB, as PyTorch divides them */
  stplan_stat reserved; /* bytes */
  stplan_stat extents;  /* pieces of address space that they lie in */
} stplan_statistics;

/* A range of memory: a live block, or a free one. Addresses between ranges have no
 * memory. */
typedef struct {
  uint64_t address, size;
  uint64_t requested; /* bytes asked for; 0 for a free range */
  stplan_stream stream; /* a block's own */
  uint32_t live;
  uint32_t first; /* starts a piece of memory */
} stplan_range;

/* stplan_plan_parse reads a plan from memory, which has to outlive it;
 * stplan_plan_open reads a file, which may change or go afterwards: a mapping would
 * change with it, behind the checks, or end the process. Both check every rule of
 * docs/planfile.md. On failure *plan is NULL, and error, a buffer of `size` bytes,
 * says what is wrong: the class of the error, a colon, and the rule; for a file that
 * cannot be read, the system's reason. The path is for the caller to say. */
stplan_status stplan_plan_parse(const void *data, size_t length, stplan_plan **plan, char *error, size_t size);
stplan_status stplan_plan_open(const char *path, stplan_plan **plan, char *error, size_t size);
void stplan_plan_close(stplan_plan *plan);

/* stplan_open makes a device object on these primitives, which it owns from then
 * on and closes in the end. plan may be NULL; otherwise it has to outlive the
 * object, and ordinal picks the device in it. Nothing is taken from the device
 * before the first stplan_malloc. */
stplan_status stplan_open(const struct sp_prim *prim, const stplan_plan *plan, int ordinal, stplan_device **device);

/* stplan_close gives all memory back, once the device is done with it. */
void stplan_close(stplan_device *d);

/* stplan_malloc returns the device address of `size` bytes, a multiple of 512,
 * or 0: with size 0, and where it fails (*status says why; it may be NULL).
 * source may be NULL. */
uint64_t stplan_malloc(stplan_device *d, size_t size, stplan_stream stream, stplan_source *source, stplan_status *status);

/* stplan_free gives a block back. stream is where it was used last; another
 * than its own counts as recorded. */
stplan_status stplan_free(stplan_device *d, uint64_t address, stplan_stream stream);

/* stplan_release gives a block back that was used on its own stream and on those
 * recorded. block, which may be NULL, says what it was. A foreign pointer is
 * refused and not counted: callers who serve from elsewhere too may ask. */
stplan_status stplan_release(stplan_device *d, uint64_t address, stplan_range *block);

/* stplan_find tells of the live block at address. */
stplan_status stplan_find(stplan_device *d, uint64_t address, stplan_range *block);

/* stplan_extent tells which piece of memory the live block at address lies in. */
stplan_status stplan_extent(stplan_device *d, uint64_t address, uint64_t *base, uint64_t *size);

/* stplan_record_stream says that stream uses the block as well: its memory is
 * reused only behind what stream has to do when the block is freed. */
stplan_status stplan_record_stream(stplan_device *d, uint64_t address, stplan_stream stream);

/* stplan_mark says that a step of the program begins here. It is never needed;
 * after drift it helps to find the place in the plan sooner. */
void stplan_mark(stplan_device *d);

/* stplan_empty_cache gives idle memory back to the device, as far as it lies
 * outside the plan, and returns the bytes. It waits for the device. */
uint64_t stplan_empty_cache(stplan_device *d);

/* stplan_hold keeps all memory from being given back to the device until it is
 * called with 0 as often as with 1: while a graph is captured, the device cannot
 * be waited for. What is being given back by another thread is waited for. */
void stplan_hold(stplan_device *d, int hold);

/* stplan_largest is the size of the largest free range, in bytes. */
uint64_t stplan_largest(stplan_device *d);

/* stplan_set_limit bounds reserved bytes; 0 is no limit. What is reserved
 * already stays. */
void stplan_set_limit(stplan_device *d, uint64_t bytes);

void stplan_read(stplan_device *d, stplan_counters *counters);

void stplan_measure(stplan_device *d, stplan_statistics *statistics);
void stplan_reset_peaks(stplan_device *d);
void stplan_reset_sums(stplan_device *d);

/* stplan_beside tells how much another allocator of the same program holds: the
 * `current` of each quantity. */
void stplan_beside(stplan_device *d, const stplan_statistics *other);

/* stplan_ranges lists all memory by address: it writes up to `room` ranges and
 * returns how many there are. */
size_t stplan_ranges(stplan_device *d, stplan_range *ranges, size_t room);

/* stplan_watch has `seen` called, from now on, whenever memory has been taken from
 * the device (taken is 1), and before it is given back (0): on the thread that
 * needs it, without the device object's lock, one call at a time. seen must not
 * call this device object. */
typedef void stplan_seen(void *context, int taken, uint64_t address, uint64_t size);
void stplan_watch(stplan_device *d, stplan_seen *seen, void *context);

/* stplan_export writes what another process opens the block's memory by, as
 * cudaIpcGetMemHandle makes it, and how far the block lies behind its beginning.
 * STPLAN_FAILED for virtual memory. */
stplan_status stplan_export(stplan_device *d, uint64_t address, unsigned char handle[64], uint64_t *offset);

/* stplan_granularity is the size in bytes of the granules that virtual memory
 * consists of, at addresses that are multiples of it; 0 for plain memory. */
uint64_t stplan_granularity(const stplan_device *d);

/* stplan_export_granule opens a file by which another process maps the granule
 * that begins at address, which has to hold bytes of a live block. The caller
 * closes it. STPLAN_FAILED where that cannot be. */
stplan_status stplan_export_granule(stplan_device *d, uint64_t address, int *file);

/* stplan_allow_peer lets another device, by its ordinal, use this one's memory,
 * where the program has enabled that for plain memory. */
stplan_status stplan_allow_peer(stplan_device *d, int ordinal);

/* stplan_share keeps the counters in a file from now on, as they are in memory,
 * so that another process can map it and read them after any exit. */
stplan_status stplan_share(stplan_device *d, const char *path);

#ifdef __cplusplus
}
#endif

#endif
