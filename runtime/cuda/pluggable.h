/* pluggable.h: the C functions that torch.cuda.memory.CUDAPluggableAllocator
 * takes, over the device objects of process.h: for processes that have no
 * compiler to build the shim with. docs/runtime.md says what that costs.
 *
 * Their signatures must match what torch calls: nothing checks them. torch calls
 * them from any thread, outside its locks. A request that fails throws: a library
 * with these functions is compiled with -fexceptions. */
#ifndef STPLAN_PLUGGABLE_H
#define STPLAN_PLUGGABLE_H

#include "process.h"
#include "pluggable_throw.h"

/* stplan_pluggable_start is stplan_start, in a process that has loaded torch; it
 * also fails where this torch lacks what it takes to throw its exceptions. */
stplan_status stplan_pluggable_start(const stplan_settings *settings, char *error, size_t size);

/* stplan_pluggable_start_on is the same with other primitives than CUDA's, and
 * something else than sp_throw to call where a request fails: for tests. */
typedef void stplan_pluggable_throw(sp_throw_class class, const char *message);
stplan_status stplan_pluggable_start_on(stplan_opener *open, stplan_pluggable_throw *throw, const stplan_settings *settings, char *error, size_t size);

/* stplan_pluggable_malloc returns `size` bytes on the stream, NULL for 0.
 * Throws torch.OutOfMemoryError where the device or the limit has none left, and
 * RuntimeError where the device cannot be opened or has more than 64 streams.
 *
 * What is requested while the stream is captured comes from memory that belongs
 * to that capture for ever: its graph replays the addresses, and nobody says for
 * how long. Freed in the same capture, it serves the same capture again. */
void *stplan_pluggable_malloc(size_t size, int device, void *stream);

/* stplan_pluggable_free never throws: torch frees in destructors. In a child that
 * was forked after CUDA had been used it does nothing: the memory is the
 * parent's. */
void stplan_pluggable_free(void *ptr, size_t size, int device, void *stream);

/* stplan_pluggable_record_stream throws RuntimeError where the device has more
 * than 64 streams: without it the memory would be reused too early. */
void stplan_pluggable_record_stream(void *ptr, void *stream);

/* stplan_pluggable_empty_cache gives idle memory of all devices back. */
void stplan_pluggable_empty_cache(void);

/* stplan_pluggable_mark is stplan_mark for all devices. */
void stplan_pluggable_mark(void);

/* stplan_pluggable_limit bounds the bytes that a device reserves, captures
 * apart; 0 is no limit. */
void stplan_pluggable_limit(int device, uint64_t bytes);

/* What a device and its captures come to together: statistics and counters. 0
 * where nothing has been requested there. */
int stplan_pluggable_read(int device, stplan_statistics *statistics, stplan_counters *counters);

/* stplan_pluggable_reset_peaks and _sums reset those statistics. */
void stplan_pluggable_reset_peaks(int device);
void stplan_pluggable_reset_sums(int device);

/* stplan_pluggable_ranges lists the memory of a device, then that of its
 * captures: it writes up to `room` ranges and returns how many there are. */
size_t stplan_pluggable_ranges(int device, stplan_range *ranges, size_t room);

#endif
