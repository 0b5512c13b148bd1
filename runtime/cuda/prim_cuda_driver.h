/* prim_cuda_driver.h: the part of the CUDA driver's interface that is used, and
 * what the files of the CUDA primitives share. */
#ifndef STPLAN_PRIM_CUDA_DRIVER_H
#define STPLAN_PRIM_CUDA_DRIVER_H

#include <pthread.h>

#include "prim.h"

/* Types and numbers of the driver's interface, as its documentation has them. */
typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_address, cu_handle;
typedef void *cu_context, *cu_event, *cu_stream;

enum { CU_SUCCESS = 0, CU_OUT_OF_MEMORY = 2, CU_EVENT_DISABLE_TIMING = 2, CU_CAPTURE_NONE = 0, CU_CAPTURE_ACTIVE = 1, CU_CAPTURE_RELAXED = 2 };
enum { CU_PINNED = 1, CU_LOCATION_DEVICE = 1, CU_READ_WRITE = 3, CU_RECOMMENDED = 1 };
/* Attributes of a device. */
enum { CU_VIRTUAL_SUPPORTED = 102, CU_FILE_SUPPORTED = 103, CU_VIRTUAL_RDMA_SUPPORTED = 110, CU_FABRIC_SUPPORTED = 128 };
enum { CU_HANDLE_FILE = 1, CU_HANDLE_FABRIC = 8 };
enum { CU_NOT_READY = 600, CU_NOT_SUPPORTED = 801, CU_CAPTURE_UNSUPPORTED = 900 }; /* results */

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

/* FUNCTIONS lists the entry points, each with the name under which it is exported. */
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
  X(event_query, "cuEventQuery", (cu_event))                                                      \
  X(capture_info, "cuStreamGetCaptureInfo_v2", (cu_stream, int *, uint64_t *, void *, void *, size_t *)) \
  X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *))                                  \
  X(address_range, "cuMemGetAddressRange_v2", (cu_address *, size_t *, cu_address))               \
  X(ipc_handle, "cuIpcGetMemHandle", (void *, cu_address))                                        \
  X(mem_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                            \
  X(retain_handle, "cuMemRetainAllocationHandle", (cu_handle *, void *))                          \
  X(export_file, "cuMemExportToShareableHandle", (void *, cu_handle, int, cu_handle))

#define DECLARE(name, symbol, arguments) cu_result(*name) arguments;

typedef struct {
  FUNCTIONS(DECLARE)
  cu_result (*context_record)(cu_context, cu_event); /* cuCtxRecordEvent; NULL before driver 12.5 */
} driver;

/* A region is a range of addresses that memory is mapped into. Each granule, of `unit`
 * bytes, is memory of its own, a handle, so that any can be given back. Of the addresses that
 * are reserved, `reserved` from `base` on, at least the last granule of the least size is never
 * used: so no region begins at the address where another ends, and an address tells which
 * region is meant. */
typedef struct region {
  struct region *next;
  uint64_t base, reserved;
  uint64_t start, end, unit;
  uint64_t mapped; /* bytes */
  uint8_t *pieces; /* for each granule, whether its memory is in handles of the least size; NULL if none is */
} region;

/* Devices that may use the memory, this one included: as many as a process can have. */
enum { SP_PEERS = 64 };

typedef struct {
  void *library;
  driver cu;
  cu_device device;
  cu_context context;
  int is_virtual; /* memory is virtual, not plain */
  uint64_t total, granularity;
  pthread_mutex_t lock; /* everything below */
  cu_allocation allocation;
  int still; /* stop_moving was called */
  region *regions;
  cu_access access[SP_PEERS]; /* the devices that may use virtual memory, this one first */
  size_t accesses;
} cuda;

/* sp_cuda_enter makes the device's context current for this thread: frees come from
 * any thread, with any context. sp_cuda_leave undoes it, and returns `failed`. */
static inline int sp_cuda_enter(const cuda *c) { return c->cu.push(c->context) == CU_SUCCESS; }

static inline int sp_cuda_leave(const cuda *c, int failed) {
  cu_context ignored;
  c->cu.pop(&ignored);
  return failed;
}

/* sp_cuda_begin enters for a call that the driver refuses while a stream is being
 * captured, by this thread or another, such as one that takes memory. It is not part of
 * the graph, and the driver has to be told so. sp_cuda_end leaves, and returns `failed`. */
static inline int sp_cuda_begin(const cuda *c, int *mode) {
  *mode = CU_CAPTURE_RELAXED;
  return sp_cuda_enter(c) && (c->cu.exchange_mode(mode) == CU_SUCCESS || sp_cuda_leave(c, 0));
}

static inline int sp_cuda_end(const cuda *c, int mode, int failed) {
  c->cu.exchange_mode(&mode);
  return sp_cuda_leave(c, failed);
}

/* The functions of sp_prim about memory. sp_cuda_drop_regions gives up all
 * addresses, in the end. */
int sp_cuda_extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr);
int sp_cuda_carry(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans);
int sp_cuda_give_back(void *self, uint64_t addr, uint64_t bytes);
int sp_cuda_export_handle(void *self, uint64_t addr, unsigned char handle[SP_HANDLE_BYTES], uint64_t *offset);
void sp_cuda_stop_moving(void *self);
int sp_cuda_granule_at(void *self, uint64_t addr, uint64_t *base, uint64_t *size);
int sp_cuda_export_granule(void *self, uint64_t addr, int *file);
int sp_cuda_room(void *self, uint64_t *bytes);
int sp_cuda_allow_peer(void *self, int ordinal);
void sp_cuda_drop_regions(cuda *c);

#endif
