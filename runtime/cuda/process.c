#define _POSIX_C_SOURCE 200809L

#include "process.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plan.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all but reading `devices` */
static stplan_opener *opener; /* NULL before the start */
static stplan_plan *plan;
static char *counters;
static sp_cuda_memory memory;
static int still; /* memory does not move */
static stplan_ranks *ranks;
static uint64_t proven; /* checksum of a plan, or 0 */
static uint64_t kept; /* bytes of history for each device */
static int lent; /* the plan, which has a single device, serves another ordinal */

/* States of a device. A state changes once, after everything else of the device is set. */
enum { UNKNOWN, SERVED, REFUSED };

static struct {
  _Atomic int state;
  stplan_device *device;
  int planned;
  _Atomic(uint32_t) off_plan; /* requests that its plan did not serve */
  _Atomic int told;           /* that its plan is suspended */
  int announced;              /* an exchange was announced before it was opened */
  uint64_t unended;           /* how many of those have calls that have not returned */
  uint64_t early;             /* the exchange that the device takes them for */
} devices[STPLAN_DEVICES];

/* The number of every exchange that is announced before its device is opened. No device
 * counts so far. */
#define EARLY UINT64_MAX

/* Of the requests that a plan does not serve, one in this many looks whether it
 * is suspended, as that takes the lock. */
enum { ASK_EVERY = 256 };

void stplan_say(const char *format, ...) {
  char line[512] = "stplan: ";
  size_t begin = strlen(line), room = sizeof line - begin - 1;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + begin, room, format, arguments);
  va_end(arguments);
  if (length < 0)
    return;
  size_t end = begin + ((size_t)length < room ? (size_t)length : room - 1);
  line[end++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, end);
  (void)ignored;
}

stplan_status stplan_start(const stplan_settings *settings, char *error, size_t size) {
  return stplan_start_on(sp_cuda_open, settings, error, size);
}

/* switched_on says whether PyTorch takes a variable of the environment for true. */
static int switched_on(const char *name) {
  static const char *const yes[] = {"1", "y", "yes", "t", "true"};
  const char *value = getenv(name);
  for (size_t i = 0; value != NULL && i < sizeof yes / sizeof *yes; i++)
    if (strcasecmp(value, yes[i]) == 0)
      return 1;
  return 0;
}

/* The variable has PyTorch register all memory with NCCL that the allocator takes. */
#define REGISTERS_ALL "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"

/* start is stplan_start_on with the lock held. */
static stplan_status start(stplan_opener *open, const stplan_settings *settings, char *error, size_t size) {
  if (opener != NULL) {
    snprintf(error, size, "started before");
    return STPLAN_FAILED;
  }
  if (settings->counters != NULL && (counters = strdup(settings->counters)) == NULL) {
    snprintf(error, size, "no memory");
    return STPLAN_FAILED;
  }
  char wrong[256];
  stplan_status status = settings->plan == NULL ? STPLAN_OK : stplan_plan_open(settings->plan, &plan, wrong, sizeof wrong);
  if (status != STPLAN_OK) {
    snprintf(error, size, "%s: %s", settings->plan, wrong);
    free(counters);
    counters = NULL;
    return status;
  }
  memory = settings->memory;
  still = settings->still;
  ranks = settings->ranks;
  proven = settings->proven;
  opener = open;
  return STPLAN_OK;
}

stplan_status stplan_start_on(stplan_opener *open, const stplan_settings *settings, char *error, size_t size) {
  pthread_mutex_lock(&lock);
  stplan_status status = start(open, settings, error, size);
  pthread_mutex_unlock(&lock);
  if (status == STPLAN_OK && switched_on(REGISTERS_ALL))
    stplan_still(REGISTERS_ALL " is set: NCCL registers it");
  return status;
}

/* of_plan is the ordinal in the plan that serves this one, or -1. */
static int of_plan(int ordinal) {
  if (plan == NULL)
    return -1;
  if (sp_plan_find(plan, ordinal) != NULL)
    return ordinal;
  if (plan->device_count != 1 || lent)
    return -1;
  lent = 1;
  return (int)plan->devices[0].ordinal;
}

static void share(stplan_device *device, int ordinal) {
  char path[4096];
  if (counters == NULL)
    return;
  int length = snprintf(path, sizeof path, "%s%d", counters, ordinal);
  if (length < 0 || (size_t)length >= sizeof path || stplan_share(device, path) != STPLAN_OK)
    stplan_say("the counters of cuda:%d cannot be kept in %s%d", ordinal, counters, ordinal);
}

/* follow has a device that is being opened follow what was announced before. */
static void follow(stplan_device *device, int ordinal) {
  if (!devices[ordinal].announced)
    return;
  devices[ordinal].early = stplan_exchange_begins(device);
  if (devices[ordinal].unended == 0)
    stplan_exchange_enqueued(device, devices[ordinal].early);
}

/* open_device makes a device's object, and returns its state. The lock is held. */
static int open_device(int ordinal) {
  sp_prim prim;
  char error[256] = "";
  if (!opener(ordinal, memory, &prim, error, sizeof error)) {
    stplan_say("cuda:%d is not served: %s", ordinal, error);
    return REFUSED;
  }
  int number = of_plan(ordinal);
  if (stplan_open(&prim, number < 0 ? NULL : plan, number, &devices[ordinal].device) != STPLAN_OK) {
    prim.close(prim.self);
    stplan_say("cuda:%d is not served: no memory", ordinal);
    return REFUSED;
  }
  stplan_prove(devices[ordinal].device, proven);
  if (still)
    stplan_stop_moving(devices[ordinal].device);
  devices[ordinal].planned = number >= 0;
  follow(devices[ordinal].device, ordinal);
  share(devices[ordinal].device, ordinal);
  if (kept > 0 && stplan_history_begin(devices[ordinal].device, kept) != STPLAN_OK)
    stplan_say("no history is kept of cuda:%d: no memory", ordinal);
  return SERVED;
}

stplan_device *stplan_at(int ordinal) {
  if (ordinal < 0 || ordinal >= STPLAN_DEVICES)
    return NULL;
  int state = atomic_load_explicit(&devices[ordinal].state, memory_order_acquire);
  if (state == UNKNOWN) {
    pthread_mutex_lock(&lock);
    state = atomic_load_explicit(&devices[ordinal].state, memory_order_relaxed);
    if (state == UNKNOWN && opener != NULL) {
      state = open_device(ordinal);
      atomic_store_explicit(&devices[ordinal].state, state, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
  }
  return state == SERVED ? devices[ordinal].device : NULL;
}

stplan_device *stplan_opened(int ordinal) {
  int state = atomic_load_explicit(&devices[ordinal].state, memory_order_acquire);
  return state == SERVED ? devices[ordinal].device : NULL;
}

void stplan_keep_history(uint64_t bytes) {
  pthread_mutex_lock(&lock);
  kept = bytes;
  pthread_mutex_unlock(&lock);
}

int stplan_planned(int ordinal) { return stplan_at(ordinal) != NULL && devices[ordinal].planned; }

void stplan_off_plan(int ordinal) {
  if (atomic_fetch_add_explicit(&devices[ordinal].off_plan, 1, memory_order_relaxed) % ASK_EVERY != 0 ||
      atomic_load_explicit(&devices[ordinal].told, memory_order_relaxed))
    return;
  stplan_counters now;
  stplan_read(devices[ordinal].device, &now);
  if (now.state == STPLAN_OFF && !atomic_exchange(&devices[ordinal].told, 1))
    stplan_say("cuda:%d: the plan does not fit this run (%llu of %llu allocations were served by it); memory comes from the pool until it does",
               ordinal, (unsigned long long)now.planned_allocations, (unsigned long long)now.allocations);
}

void stplan_still(const char *why) {
  pthread_mutex_lock(&lock);
  int before = still;
  still = 1;
  for (int i = 0; i < STPLAN_DEVICES && !before; i++)
    if (atomic_load_explicit(&devices[i].state, memory_order_relaxed) == SERVED)
      stplan_stop_moving(devices[i].device);
  pthread_mutex_unlock(&lock);
  if (!before)
    stplan_say("from now on memory does not move: %s", why);
}

/* announce is stplan_exchange_begins_at for a device that was not open. With the lock
 * held it may turn out to be. */
static uint64_t announce(int ordinal) {
  pthread_mutex_lock(&lock);
  int state = atomic_load_explicit(&devices[ordinal].state, memory_order_relaxed);
  int early = state == UNKNOWN && opener != NULL;
  if (early) {
    devices[ordinal].announced = 1;
    devices[ordinal].unended++;
  }
  pthread_mutex_unlock(&lock);
  return early ? EARLY : state == SERVED ? stplan_exchange_begins(devices[ordinal].device) : 0;
}

/* end is stplan_exchange_enqueued_at for what was announced early. */
static void end(int ordinal) {
  pthread_mutex_lock(&lock);
  int last = --devices[ordinal].unended == 0;
  stplan_device *d = stplan_opened(ordinal);
  pthread_mutex_unlock(&lock);
  if (last && d != NULL)
    stplan_exchange_enqueued(d, devices[ordinal].early);
}

uint64_t stplan_exchange_begins_at(int ordinal) {
  if (ordinal < 0 || ordinal >= STPLAN_DEVICES)
    return 0;
  stplan_device *d = stplan_opened(ordinal);
  return d != NULL ? stplan_exchange_begins(d) : announce(ordinal);
}

void stplan_exchange_enqueued_at(int ordinal, uint64_t exchange) {
  if (ordinal < 0 || ordinal >= STPLAN_DEVICES)
    return;
  stplan_device *d = stplan_opened(ordinal);
  if (exchange == EARLY)
    end(ordinal);
  else if (d != NULL)
    stplan_exchange_enqueued(d, exchange);
}

void stplan_exchange_awaited_at(int ordinal, uint64_t exchange, stplan_stream stream) {
  stplan_device *d = ordinal < 0 || ordinal >= STPLAN_DEVICES ? NULL : stplan_opened(ordinal);
  if (d != NULL) /* EARLY is the number of none of its exchanges */
    stplan_exchange_awaited(d, exchange, stream);
}

/* several says whether the job has several ranks. */
static int several(void) {
  const char *world = getenv("WORLD_SIZE");
  return (world != NULL && atoi(world) > 1) || (ranks != NULL && ranks() > 1);
}

void stplan_captures(void) {
  const char *registers = getenv("NCCL_GRAPH_REGISTER");
  pthread_mutex_lock(&lock);
  int before = still;
  pthread_mutex_unlock(&lock);
  if (!before && (registers == NULL || strcmp(registers, "0") != 0) && several())
    stplan_still("one of several ranks captures a graph or uses a MemPool, and NCCL may register buffers");
}
