#define _POSIX_C_SOURCE 200809L

#include "prim_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "prim_cuda_driver.h"
#include "sizes.h"

/* Bytes. Plain memory is taken in multiples of it; virtual memory has granules
 * of this size. */
enum { PLAIN_GRANULARITY = 2 << 20 };

static int synchronize(void *self) {
  cuda *c = self;
  int mode;
  return !sp_cuda_begin(c, &mode) || sp_cuda_end(c, mode, c->cu.synchronize() != CU_SUCCESS);
}

static int event_create(void *self, void **event) {
  cuda *c = self;
  return !sp_cuda_enter(c) || sp_cuda_leave(c, c->cu.event_create(event, CU_EVENT_DISABLE_TIMING) != CU_SUCCESS);
}

static void event_destroy(void *self, void *event) {
  cuda *c = self;
  if (sp_cuda_enter(c))
    sp_cuda_leave(c, c->cu.event_destroy(event) != CU_SUCCESS);
}

static int event_record(void *self, void *event, uint64_t stream) {
  cuda *c = self;
  return !sp_cuda_enter(c) || sp_cuda_leave(c, c->cu.event_record(event, (cu_stream)(uintptr_t)stream) != CU_SUCCESS);
}

static int stream_wait(void *self, uint64_t stream, void *event) {
  cuda *c = self;
  return !sp_cuda_enter(c) || sp_cuda_leave(c, c->cu.stream_wait((cu_stream)(uintptr_t)stream, event, 0) != CU_SUCCESS);
}

/* The driver refuses if a stream of the context is being captured, and that breaks the
 * capture. It should not have been asked then; it is not asked again. */
static int event_record_whole(void *self, void *event) {
  cuda *c = self;
  if (!sp_cuda_enter(c))
    return 1;
  cu_result result = c->cu.context_record(c->context, event);
  sp_cuda_leave(c, 0);
  if (result == CU_CAPTURE_UNSUPPORTED || result == CU_NOT_SUPPORTED)
    return SP_NEVER;
  return result != CU_SUCCESS;
}

/* While anything is captured in global mode, only relaxed threads may ask. */
static int event_done(void *self, void *event) {
  cuda *c = self;
  int mode;
  if (!sp_cuda_begin(c, &mode))
    return -1;
  cu_result result = c->cu.event_query(event);
  return sp_cuda_end(c, mode, result != CU_SUCCESS && result != CU_NOT_READY) ? -1 : result == CU_SUCCESS;
}

static uint64_t capturing(void *self, uint64_t stream) {
  cuda *c = self;
  int state;
  uint64_t id;
  if (!sp_cuda_enter(c))
    return UINT64_MAX;
  int failed = sp_cuda_leave(c, c->cu.capture_info((cu_stream)(uintptr_t)stream, &state, &id, NULL, NULL, NULL) != CU_SUCCESS);
  if (!failed && state == CU_CAPTURE_NONE)
    return 0;
  return failed || state != CU_CAPTURE_ACTIVE ? UINT64_MAX : id + 1; /* ids may begin at 0, which means none here */
}

static void cuda_close(void *self) {
  cuda *c = self;
  int entered = sp_cuda_enter(c);
  sp_cuda_drop_regions(c); /* and their records in any case */
  if (entered)
    sp_cuda_leave(c, 0);
  c->cu.release(c->device);
  pthread_mutex_destroy(&c->lock);
  free(c); /* the library stays loaded: others use it */
}

#define LOOK_UP(name, symbol, arguments)               \
  *(void **)&c->cu.name = dlsym(c->library, symbol);   \
  if (c->cu.name == NULL)                              \
    return "the driver lacks " symbol;

/* load opens the driver. The answer is what is missing, or NULL. */
static const char *load(cuda *c) {
  c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (c->library == NULL)
    return "no CUDA driver: libcuda.so.1 does not load";
  FUNCTIONS(LOOK_UP)
  *(void **)&c->cu.context_record = dlsym(c->library, "cuCtxRecordEvent");
  return NULL;
}

/* prepare_virtual finds out how virtual memory is taken. 0 if the device has none. */
static int prepare_virtual(cuda *c, int ordinal) {
  size_t granularity = 0;
  int supported = 0, rdma = 0, files = 0, fabric = 0;
  c->allocation = (cu_allocation){.type = CU_PINNED, .location = {CU_LOCATION_DEVICE, ordinal}};
  if (c->cu.attribute(&supported, CU_VIRTUAL_SUPPORTED, c->device) != CU_SUCCESS || !supported)
    return 0;
  if (c->cu.attribute(&files, CU_FILE_SUPPORTED, c->device) == CU_SUCCESS && files)
    c->allocation.requested_handle_types = CU_HANDLE_FILE;
  if (c->cu.attribute(&fabric, CU_FABRIC_SUPPORTED, c->device) == CU_SUCCESS && fabric)
    c->allocation.requested_handle_types |= CU_HANDLE_FABRIC;
  c->allocation.flags.rdma = c->cu.attribute(&rdma, CU_VIRTUAL_RDMA_SUPPORTED, c->device) == CU_SUCCESS && rdma;
  if (c->cu.granularity(&granularity, &c->allocation, CU_RECOMMENDED) != CU_SUCCESS || granularity == 0)
    return 0;
  c->granularity = granularity;
  c->access[c->accesses++] = (cu_access){.location = c->allocation.location, .flags = CU_READ_WRITE};
  return 1;
}

/* start finds the device and what it can do. The answer is what is missing, or NULL. */
static const char *start(cuda *c, int ordinal, sp_cuda_memory memory) {
  size_t total;
  if (c->cu.init(0) != CU_SUCCESS || c->cu.device_get(&c->device, ordinal) != CU_SUCCESS || c->cu.total(&total, c->device) != CU_SUCCESS)
    return "no such device";
  c->total = total;
  c->granularity = PLAIN_GRANULARITY;
  c->is_virtual = memory != SP_CUDA_PLAIN && prepare_virtual(c, ordinal);
  if (memory == SP_CUDA_VIRTUAL && !c->is_virtual)
    return "the device has no virtual memory management";
  return c->cu.retain(&c->context, c->device) == CU_SUCCESS ? NULL : "no context on the device";
}

int sp_cuda_open(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  cuda *c = calloc(1, sizeof *c);
  const char *problem = "no memory";
  if (c != NULL) {
    problem = load(c);
    if (problem == NULL)
      problem = start(c, ordinal, memory);
  }
  if (problem != NULL) {
    snprintf(error, size, "%s", problem);
    free(c);
    return 0;
  }
  pthread_mutex_init(&c->lock, NULL);
  *prim = (sp_prim){
      .self = c,
      .granularity = c->granularity,
      .partial = c->is_virtual,
      .span = c->is_virtual ? sp_round_up(2 * c->total, c->granularity) : 0,
      .extend = sp_cuda_extend,
      .carry = c->is_virtual ? sp_cuda_carry : NULL,
      .give_back = sp_cuda_give_back,
      .synchronize = synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .stream_wait = stream_wait,
      .event_record_whole = c->cu.context_record == NULL ? NULL : event_record_whole,
      .event_done = event_done,
      .capturing = capturing,
      .export_handle = c->is_virtual ? NULL : sp_cuda_export_handle,
      .stop_moving = c->is_virtual ? sp_cuda_stop_moving : NULL,
      .granule_at = c->is_virtual ? sp_cuda_granule_at : NULL,
      .export_granule = c->allocation.requested_handle_types & CU_HANDLE_FILE ? sp_cuda_export_granule : NULL,
      .room = sp_cuda_room,
      .allow_peer = sp_cuda_allow_peer,
      .close = cuda_close,
  };
  return 1;
}
