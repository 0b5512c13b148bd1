/* pluggable.h: the C functions that torch.cuda.memory.CUDAPluggableAllocator
 * takes, over the device objects of process.h. They are for processes that have
 * no compiler to build the shim with; docs/runtime.md says what that costs.
 *
 * The signatures have to match what torch calls, and nothing checks them. torch
 * calls them from any thread, outside its locks. A request that fails throws,
 * so a library with these functions has to be compiled with -fexceptions. */
#ifndef STPLAN_PLUGGABLE_H
#define STPLAN_PLUGGABLE_H

#include "process.h"
#include "pluggable_throw.h"

/* stplan_pluggable_start is stplan_start for a process that has loaded torch.
 * It also fails if this torch lacks what it takes to throw its exceptions. */
stplan_status stplan_pluggable_start(const stplan_settings *settings, char *error, size_t size);

/* stplan_pluggable_start_on is the same with other primitives than CUDA's, and with a
 * function that is called instead of sp_throw if a request fails. It is for tests. */
typedef void stplan_pluggable_throw(sp_throw_class class, const char *message);
stplan_status stplan_pluggable_start_on(stplan_opener *open, stplan_pluggable_throw *throw, const stplan_settings *settings, char *error, size_t size);

/* stplan_pluggable_malloc returns `size` bytes on the stream; NULL if size is
 * 0. It throws torch.OutOfMemoryError if the device or the limit has none left,
 * and RuntimeError if the device cannot be opened or has more than 64 streams.
 *
 * What is requested while the stream is captured comes from memory that belongs
 * to that capture for ever: its graph replays the addresses, and nobody says for
 * how long. What is freed during the capture serves the same capture again. */
void *stplan_pluggable_malloc(size_t size, int device, void *stream);

/* stplan_pluggable_free never throws, as torch frees in destructors. In a child that was
 * forked after CUDA had been used it does nothing, as the memory is the parent's. */
void stplan_pluggable_free(void *ptr, size_t size, int device, void *stream);

/* stplan_pluggable_record_stream throws RuntimeError if the device has more
 * than 64 streams: otherwise the memory would be reused too early. */
void stplan_pluggable_record_stream(void *ptr, void *stream);

/* stplan_pluggable_empty_cache gives the idle memory of all devices back. */
void stplan_pluggable_empty_cache(void);

/* stplan_pluggable_pause and stplan_pluggable_resume are stplan_pause and stplan_resume for a
 * device, or for all that are in use if it is negative; the bytes are summed up, and the
 * status is the first that is not STPLAN_OK. stplan_pluggable_survey is stplan_survey, with
 * what captures have reserved as well, which stays. 0 if the device is not in use. */
stplan_status stplan_pluggable_pause(int device, uint64_t *given);
stplan_status stplan_pluggable_resume(int device, uint64_t most, uint64_t *taken);
int stplan_pluggable_survey(int device, stplan_memory *memory, uint64_t *captured);

/* torch's MempoolId_t, a pair that C++ passes as C does a structure. */
typedef struct {
  unsigned long long first, second;
} stplan_pool_id;

/* stplan_pluggable_begin_pool is called before a graph is captured, and
 * stplan_pluggable_end_pool after: meanwhile no device is waited for and no memory is given
 * back. filter is a std::function, by its address. */
void stplan_pluggable_begin_pool(int device, stplan_pool_id pool, void *filter);
void stplan_pluggable_end_pool(int device, stplan_pool_id pool);

/* stplan_pluggable_pin pins memory of a live block, or unpins it if `pin` is 0.
 * STPLAN_BAD_POINTER if there is no such block, or no such pin. */
stplan_status stplan_pluggable_pin(uint64_t address, uint64_t size, int pin);

/* stplan_pluggable_mark is stplan_mark for all devices. */
void stplan_pluggable_mark(void);

/* stplan_pluggable_exchange_begins, stplan_pluggable_exchange_enqueued and
 * stplan_pluggable_exchange_awaited are stplan_exchange_begins_at, stplan_exchange_enqueued_at
 * and stplan_exchange_awaited_at. They do nothing in a forked child of a process that has
 * opened devices. */
uint64_t stplan_pluggable_exchange_begins(int device);
void stplan_pluggable_exchange_enqueued(int device, uint64_t exchange);
void stplan_pluggable_exchange_awaited(int device, uint64_t exchange, stplan_stream stream);

/* stplan_pluggable_limit bounds the bytes that a device reserves, those of
 * captures not counted; 0 is no limit. */
void stplan_pluggable_limit(int device, uint64_t bytes);

/* stplan_pluggable_read reads the statistics and counters of a device and its
 * captures together. 0 if nothing has been requested there. */
int stplan_pluggable_read(int device, stplan_statistics *statistics, stplan_counters *counters);

/* stplan_pluggable_reset_peaks and stplan_pluggable_reset_sums reset those statistics. */
void stplan_pluggable_reset_peaks(int device);
void stplan_pluggable_reset_sums(int device);

/* stplan_pluggable_ranges lists the memory of a device, then that of its
 * captures. It writes up to `room` ranges and returns how many there are. */
size_t stplan_pluggable_ranges(int device, stplan_range *ranges, size_t room);

#endif
