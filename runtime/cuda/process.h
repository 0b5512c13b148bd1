/* process.h: the device objects of a process, one for each device that it asks
 * for, opened at first use and never closed. Who loads the runtime into another
 * program starts here. */
#ifndef STPLAN_PROCESS_H
#define STPLAN_PROCESS_H

#include "prim_cuda.h"
#include "stplan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Devices that a process can have; a 64-bit mask has a bit for each. */
enum { STPLAN_DEVICES = 64 };

/* How many ranks the job has that this process belongs to, as far as is known. */
typedef int stplan_ranks(void);

typedef struct {
  const char *plan;     /* path; NULL: none */
  const char *counters; /* device N keeps its counters in the file with this name and N behind it; NULL: nowhere */
  sp_cuda_memory memory;
  int still;           /* memory does not move, whatever happens */
  stplan_ranks *ranks; /* NULL: by WORLD_SIZE of the environment */
  uint64_t proven;     /* checksum of a plan that an earlier run has followed (stplan_prove); 0: none */
} stplan_settings;

/* stplan_start reads the plan and keeps the settings. It has to be called
 * before the others, and once; a second call is refused with STPLAN_FAILED. On
 * failure error, a buffer of `size` bytes, says why, and nothing is served. */
stplan_status stplan_start(const stplan_settings *settings, char *error, size_t size);

/* stplan_at is the object of a device, by its ordinal, from any thread. A
 * device that the plan has is served by it. If the plan has a single device, it
 * serves the first other ordinal that is asked for, as ranks that share a plan
 * need. All other devices are served without a plan. NULL if the device cannot
 * be served at all; one line on standard error says so, once. */
stplan_device *stplan_at(int ordinal);

/* stplan_planned says whether a plan was opened for the device. */
int stplan_planned(int ordinal);

/* stplan_off_plan is told of a request that the plan of a device did not serve.
 * If the plan is suspended, it says so on standard error, once: that costs
 * memory that the user counts on. */
void stplan_off_plan(int ordinal);

/* stplan_still has no memory of the process move from now on (stplan_stop_moving, also for
 * devices that are opened later), as somebody may know its addresses: `why` says who, on
 * standard error, once. */
void stplan_still(const char *why);

/* stplan_captures is told that a graph is about to be captured, or a MemPool to be used, which
 * look alike. If this is one of several ranks, memory does not move from now on: NCCL
 * registers the buffers of collectives in graphs, and finds a registration again by its
 * address, unless NCCL_GRAPH_REGISTER is 0. */
void stplan_captures(void);

/* stplan_exchange_begins_at, stplan_exchange_enqueued_at and stplan_exchange_awaited_at are
 * stplan_exchange_begins, stplan_exchange_enqueued and stplan_exchange_awaited for a device, by
 * its ordinal. It need not be open yet, and they do not open it. What is announced before a
 * device is opened is followed from then on, as one exchange that nobody has awaited. */
uint64_t stplan_exchange_begins_at(int ordinal);
void stplan_exchange_enqueued_at(int ordinal, uint64_t exchange);
void stplan_exchange_awaited_at(int ordinal, uint64_t exchange, stplan_stream stream);

/* stplan_keep_history has every device that is used for the first time from now on keep its
 * history, in at most `bytes` of the host for each device. stplan_step notes that a step of
 * an optimizer has ended, on all devices.
 *
 * stplan_learns is told that an iteration of the program has ended, or that the process is
 * `ending`, and says whether the history of any device is to be written now, the first time
 * after `first` iterations (stplan_learn_due). stplan_save_history writes the histories of all
 * devices to a file, and ends them if no other plan may be made of them; if path is NULL it
 * ends them only.
 *
 * stplan_install_plan has the plan of a file serve this process, which goes on: each of its
 * devices from one of its next iterations on (stplan_install). On failure error, a buffer of
 * `size` bytes, says why, and everything stays as it was. Plans are kept until the process
 * ends. */
void stplan_keep_history(uint64_t bytes);
void stplan_step(unsigned optimizer);
int stplan_learns(unsigned first, int ending);
stplan_status stplan_save_history(const char *path, int rank);
stplan_status stplan_install_plan(const char *path, char *error, size_t size);

/* stplan_opened is the object of a device that has been used, or NULL. */
stplan_device *stplan_opened(int ordinal);

/* stplan_say writes a line to standard error in one piece, with "stplan: " before it. */
void stplan_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* stplan_start_on is stplan_start with other primitives than CUDA's. */
typedef int stplan_opener(int ordinal, sp_cuda_memory memory, struct sp_prim *prim, char *error, size_t size);
stplan_status stplan_start_on(stplan_opener *open, const stplan_settings *settings, char *error, size_t size);

#ifdef __cplusplus
}
#endif

#endif
