#define _POSIX_C_SOURCE 200809L

#include "prim_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of the driver's interface, by its documentation. */
typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_address, cu_handle;
typedef void *cu_context, *cu_event, *cu_stream;

enum { CU_SUCCESS = 0, CU_EVENT_DISABLE_TIMING = 2, CU_CAPTURE_NONE = 0 };
enum { CU_PINNED = 1, CU_LOCATION_DEVICE = 1, CU_READ_WRITE = 3, CU_RECOMMENDED = 1, CU_VIRTUAL_SUPPORTED = 102 };

typedef struct {
  int type, id;
} cu_location;

typedef struct {
  int type, requested_handle_types;
  cu_location location;
  void *win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} cu_allocation;

typedef struct {
  cu_location location;
  int flags;
} cu_access;

/* FUNCTIONS lists the entry points, each with the name it is exported by. */
#define FUNCTIONS(X)                                                                              \
  X(init, "cuInit", (unsigned))                                                                   \
  X(device_get, "cuDeviceGet", (cu_device *, int))                                                \
  X(attribute, "cuDeviceGetAttribute", (int *, int, cu_device))                                   \
  X(total, "cuDeviceTotalMem_v2", (size_t *, cu_device))                                          \
  X(retain, "cuDevicePrimaryCtxRetain", (cu_context *, cu_device))                                \
  X(release, "cuDevicePrimaryCtxRelease_v2", (cu_device))                                         \
  X(push, "cuCtxPushCurrent_v2", (cu_context))                                                    \
  X(pop, "cuCtxPopCurrent_v2", (cu_context *))                                                    \
  X(synchronize, "cuCtxSynchronize", (void))                                                      \
  X(mem_alloc, "cuMemAlloc_v2", (cu_address *, size_t))                                           \
  X(mem_free, "cuMemFree_v2", (cu_address))                                                       \
  X(address_reserve, "cuMemAddressReserve", (cu_address *, size_t, size_t, cu_address, cu_handle)) \
  X(address_free, "cuMemAddressFree", (cu_address, size_t))                                       \
  X(create, "cuMemCreate", (cu_handle *, size_t, const cu_allocation *, cu_handle))               \
  X(mem_release, "cuMemRelease", (cu_handle))                                                     \
  X(map, "cuMemMap", (cu_address, size_t, size_t, cu_handle, cu_handle))                          \
  X(unmap, "cuMemUnmap", (cu_address, size_t))                                                    \
  X(set_access, "cuMemSetAccess", (cu_address, size_t, const cu_access *, size_t))                \
  X(granularity, "cuMemGetAllocationGranularity", (size_t *, const cu_allocation *, int))         \
  X(event_create, "cuEventCreate", (cu_event *, unsigned))                                        \
  X(event_destroy, "cuEventDestroy_v2", (cu_event))                                               \
  X(event_record, "cuEventRecord", (cu_event, cu_stream))                                         \
  X(stream_wait, "cuStreamWaitEvent", (cu_stream, cu_event, unsigned))                            \
  X(is_capturing, "cuStreamIsCapturing", (cu_stream, int *))

#define DECLARE(name, symbol, arguments) cu_result(*name) arguments;

typedef struct {
  FUNCTIONS(DECLARE)
} driver;

/* A region is a range of addresses that memory is mapped into, from its start
 * on. Each granule is memory of its own, so that any can be given back. */
typedef struct region {
  struct region *next;
  uint64_t start, end;
  uint64_t top;    /* where what is mapped ends */
  uint64_t mapped; /* bytes; without any the region is given up */
} region;

typedef struct {
  void *library;
  driver cu;
  cu_device device;
  cu_context context;
  sp_cuda_memory memory;
  uint64_t total, granularity;
  cu_allocation allocation;
  pthread_mutex_t lock; /* the list of regions */
  region *regions;
} cuda;

enum { PLAIN_GRANULARITY = 2 << 20 };

/* enter makes the device's context current for this thread, whatever it was:
 * frees come from any. leave undoes it and passes an outcome on. */
static int enter(const cuda *c) { return c->cu.push(c->context) == CU_SUCCESS; }

static int leave(const cuda *c, int failed) {
  cu_context ignored;
  c->cu.pop(&ignored);
  return failed;
}

/* unmap_granules undoes map_granules for the first bytes of a range. */
static int unmap_granules(const cuda *c, uint64_t addr, uint64_t bytes) {
  int failed = 0;
  for (uint64_t at = 0; at < bytes; at += c->granularity)
    failed |= c->cu.unmap(addr + at, c->granularity) != CU_SUCCESS;
  return failed;
}

/* map_granules backs [addr, addr+bytes). The handle of each granule is released
 * at once: its memory then lives until it is unmapped. */
static int map_granules(const cuda *c, uint64_t addr, uint64_t bytes) {
  cu_access access = {.location = c->allocation.location, .flags = CU_READ_WRITE};
  uint64_t at = 0;
  for (; at < bytes; at += c->granularity) {
    cu_handle handle;
    if (c->cu.create(&handle, c->granularity, &c->allocation, 0) != CU_SUCCESS)
      break;
    int failed = c->cu.map(addr + at, c->granularity, 0, handle, 0) != CU_SUCCESS;
    c->cu.mem_release(handle);
    if (failed)
      break;
  }
  if (at == bytes && c->cu.set_access(addr, bytes, &access, 1) == CU_SUCCESS)
    return 0;
  unmap_granules(c, addr, at);
  return 1;
}

/* room takes up the address for so many bytes: `at`, where a region's memory ends
 * there, or the start of a new one. 0 where there is none. */
static uint64_t room(cuda *c, uint64_t at, uint64_t bytes) {
  uint64_t found = 0;
  pthread_mutex_lock(&c->lock);
  for (region *r = c->regions; r != NULL; r = r->next)
    if (r->top == at && bytes <= r->end - at) {
      r->mapped += bytes;
      r->top += bytes;
      found = at;
      break;
    }
  region *r = found != 0 ? NULL : calloc(1, sizeof *r);
  if (r != NULL) {
    uint64_t span = (2 * (c->total > bytes ? c->total : bytes) / c->granularity + 1) * c->granularity;
    cu_address start;
    if (c->cu.address_reserve(&start, span, 0, 0, 0) == CU_SUCCESS) {
      *r = (region){.next = c->regions, .start = start, .end = start + span, .top = start + bytes, .mapped = bytes};
      c->regions = r;
      found = start;
    } else {
      free(r);
    }
  }
  pthread_mutex_unlock(&c->lock);
  return found;
}

/* granules is what so many bytes take of virtual memory. */
static uint64_t granules(const cuda *c, uint64_t bytes) { return (bytes + c->granularity - 1) / c->granularity * c->granularity; }

/* vacate takes bytes off the region that holds addr, and gives it up where it has
 * none left. */
static void vacate(cuda *c, uint64_t addr, uint64_t bytes) {
  pthread_mutex_lock(&c->lock);
  region **link = &c->regions;
  while (*link != NULL && (addr < (*link)->start || addr >= (*link)->end))
    link = &(*link)->next;
  region *r = *link;
  if (r != NULL && r->top == addr + bytes)
    r->top = addr;
  if (r != NULL && (r->mapped -= bytes) == 0) {
    *link = r->next;
    c->cu.address_free(r->start, r->end - r->start);
    free(r);
  }
  pthread_mutex_unlock(&c->lock);
}

static int extend(void *self, uint64_t at, uint64_t bytes, uint64_t *addr) {
  cuda *c = self;
  if (!enter(c))
    return 1;
  if (c->memory == SP_CUDA_PLAIN) {
    cu_address got;
    int failed = c->cu.mem_alloc(&got, bytes) != CU_SUCCESS;
    if (!failed)
      *addr = got;
    return leave(c, failed);
  }
  bytes = granules(c, bytes);
  uint64_t start = room(c, at, bytes);
  if (start == 0)
    return leave(c, 1);
  int failed = map_granules(c, start, bytes);
  if (failed)
    vacate(c, start, bytes);
  else
    *addr = start;
  return leave(c, failed);
}

static int give_back(void *self, uint64_t addr, uint64_t bytes) {
  cuda *c = self;
  if (!enter(c))
    return 1;
  if (c->memory == SP_CUDA_PLAIN)
    return leave(c, c->cu.mem_free(addr) != CU_SUCCESS);
  bytes = granules(c, bytes);
  int failed = unmap_granules(c, addr, bytes);
  if (!failed)
    vacate(c, addr, bytes);
  return leave(c, failed);
}

static int synchronize(void *self) {
  cuda *c = self;
  return !enter(c) || leave(c, c->cu.synchronize() != CU_SUCCESS);
}

static int event_create(void *self, void **event) {
  cuda *c = self;
  return !enter(c) || leave(c, c->cu.event_create(event, CU_EVENT_DISABLE_TIMING) != CU_SUCCESS);
}

static void event_destroy(void *self, void *event) {
  cuda *c = self;
  if (enter(c))
    leave(c, c->cu.event_destroy(event) != CU_SUCCESS);
}

static int event_record(void *self, void *event, uint64_t stream) {
  cuda *c = self;
  return !enter(c) || leave(c, c->cu.event_record(event, (cu_stream)(uintptr_t)stream) != CU_SUCCESS);
}

static int stream_wait(void *self, uint64_t stream, void *event) {
  cuda *c = self;
  return !enter(c) || leave(c, c->cu.stream_wait((cu_stream)(uintptr_t)stream, event, 0) != CU_SUCCESS);
}

static int capturing(void *self, uint64_t stream) {
  cuda *c = self;
  int state = CU_CAPTURE_NONE;
  return !enter(c) || leave(c, c->cu.is_capturing((cu_stream)(uintptr_t)stream, &state) != CU_SUCCESS || state != CU_CAPTURE_NONE);
}

static void cuda_close(void *self) {
  cuda *c = self;
  int current = enter(c);
  while (c->regions != NULL) {
    region *r = c->regions;
    c->regions = r->next;
    c->cu.address_free(r->start, r->end - r->start);
    free(r);
  }
  if (current)
    leave(c, 0);
  c->cu.release(c->device);
  pthread_mutex_destroy(&c->lock);
  free(c); /* the library stays: others use it */
}

#define LOOK_UP(name, symbol, arguments)               \
  *(void **)&c->cu.name = dlsym(c->library, symbol);   \
  if (c->cu.name == NULL)                              \
    return "the driver lacks " symbol;

/* load opens the driver. It says what is missing, or NULL. */
static const char *load(cuda *c) {
  c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (c->library == NULL)
    return "no CUDA driver: libcuda.so.1 does not load";
  FUNCTIONS(LOOK_UP)
  return NULL;
}

/* start finds the device and what it can. */
static const char *start(cuda *c, int ordinal) {
  int supported = 1;
  size_t total;
  if (c->cu.init(0) != CU_SUCCESS || c->cu.device_get(&c->device, ordinal) != CU_SUCCESS || c->cu.total(&total, c->device) != CU_SUCCESS)
    return "no such device";
  c->total = total;
  c->granularity = PLAIN_GRANULARITY;
  if (c->memory == SP_CUDA_VIRTUAL) {
    size_t granularity = 0;
    c->allocation = (cu_allocation){.type = CU_PINNED, .location = {CU_LOCATION_DEVICE, ordinal}};
    if (c->cu.attribute(&supported, CU_VIRTUAL_SUPPORTED, c->device) != CU_SUCCESS || !supported ||
        c->cu.granularity(&granularity, &c->allocation, CU_RECOMMENDED) != CU_SUCCESS || granularity == 0)
      return "the device has no virtual memory management";
    c->granularity = granularity;
  }
  return c->cu.retain(&c->context, c->device) == CU_SUCCESS ? NULL : "no context on the device";
}

int sp_cuda_open(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  cuda *c = calloc(1, sizeof *c);
  const char *problem = "no memory";
  if (c != NULL) {
    c->memory = memory;
    problem = load(c);
    if (problem == NULL)
      problem = start(c, ordinal);
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
      .partial = memory == SP_CUDA_VIRTUAL,
      .extend = extend,
      .give_back = give_back,
      .synchronize = synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .stream_wait = stream_wait,
      .capturing = capturing,
      .close = cuda_close,
  };
  return 1;
}
