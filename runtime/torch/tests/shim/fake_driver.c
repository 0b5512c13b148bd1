/* fake_driver.c: a libcuda.so.1 with one simulated device. It has the functions that the
 * runtime's CUDA primitives and the start of torch call. Virtual memory and plain memory
 * are addresses only, from 0x200000000000 and from 0x300000000000 on. If FAKE_LOG is set,
 * it is a file descriptor to which events recorded and waits for events are written. If
 * FAKE_DEVICE is set, it is a file that holds the bytes in use: processes with the same one
 * have the same device. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TOTAL ((size_t)256 << 20)
enum { OK = 0, OUT_OF_MEMORY = 2, GRANULE = 2 << 20, VIRTUAL_SUPPORTED = 102, FILES_SUPPORTED = 103 };

static size_t alone, *used = &alone;
static uint64_t next_virtual = UINT64_C(0x200000000000), next_plain = UINT64_C(0x300000000000);

__attribute__((constructor)) static void share(void) {
  const char *path = getenv("FAKE_DEVICE");
  int file = path == NULL ? -1 : open(path, O_RDWR);
  void *shared = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *used, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED)
    used = shared;
}

static int take(size_t n) {
  if (n > TOTAL - *used)
    return OUT_OF_MEMORY;
  *used += n;
  return OK;
}

int cuInit(unsigned flags) { return (void)flags, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGetName(char *name, int room, int device) { return (void)device, snprintf(name, (size_t)room, "Simulated"), OK; }
int cuDeviceTotalMem_v2(size_t *total, int device) { return (void)device, *total = TOTAL, OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == VIRTUAL_SUPPORTED || attribute == FILES_SUPPORTED;
  return OK;
}
int cuMemGetInfo_v2(size_t *available, size_t *total) { return *total = TOTAL, *available = TOTAL - *used, OK; }

int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, *context = used, OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, OK; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return (void)device, *flags = 0, *active = 1, OK; }
int cuCtxPushCurrent_v2(void *context) { return (void)context, OK; }
int cuCtxPopCurrent_v2(void **context) { return *context = used, OK; }
int cuCtxSynchronize(void) { return OK; }

int cuMemAlloc_v2(uint64_t *address, size_t n) {
  *address = next_plain;
  next_plain += n + GRANULE;
  return take(n);
}
int cuMemFree_v2(uint64_t address) { return (void)address, OK; }
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
  *base = address & ~UINT64_C(0xfffff);
  *size = GRANULE;
  return OK;
}
int cuIpcGetMemHandle(void *handle, uint64_t address) { return (void)address, memset(handle, 7, 64), OK; }

int cuMemAddressReserve(uint64_t *address, size_t n, size_t alignment, uint64_t at, uint64_t flags) {
  (void)alignment, (void)at, (void)flags;
  *address = next_virtual;
  next_virtual += n;
  return OK;
}
int cuMemAddressFree(uint64_t address, size_t n) { return (void)address, (void)n, OK; }
int cuMemCreate(uint64_t *handle, size_t n, const void *properties, uint64_t flags) {
  (void)properties, (void)flags;
  *handle = 1;
  return take(n);
}
int cuMemRelease(uint64_t handle) { return (void)handle, OK; }
int cuMemMap(uint64_t address, size_t n, size_t offset, uint64_t handle, uint64_t flags) {
  return (void)address, (void)n, (void)offset, (void)handle, (void)flags, OK;
}
int cuMemUnmap(uint64_t address, size_t n) { return (void)address, *used -= n, OK; }
int cuMemSetAccess(uint64_t address, size_t n, const void *access, size_t count) {
  return (void)address, (void)n, (void)access, (void)count, OK;
}
int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int which) {
  return (void)properties, (void)which, *granularity = GRANULE, OK;
}
int cuMemRetainAllocationHandle(uint64_t *handle, void *address) { return (void)address, *handle = 1, OK; }
int cuMemExportToShareableHandle(void *file, uint64_t handle, int type, uint64_t flags) {
  (void)handle, (void)type, (void)flags;
  int opened = open("/dev/null", O_RDONLY);
  memcpy(file, &opened, sizeof opened);
  return opened < 0;
}

int cuEventCreate(void **event, unsigned flags) { return (void)flags, (*event = malloc(1)) == NULL; }
int cuEventDestroy_v2(void *event) { return free(event), OK; }
static int note(const char *what, void *stream, void *event) {
  const char *log = getenv("FAKE_LOG");
  if (log != NULL)
    dprintf(atoi(log), "%s %zu %zu\n", what, (size_t)stream, (size_t)event);
  return OK;
}
int cuEventRecord(void *event, void *stream) { return note("record", stream, event); }
int cuCtxRecordEvent(void *context, void *event) { return (void)context, note("whole", NULL, event); }
int cuEventQuery(void *event) { return (void)event, OK; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)flags, note("wait", stream, event); }
int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void *graph, void *before, size_t *count) {
  return (void)stream, (void)id, (void)graph, (void)before, (void)count, *status = 0, OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) { return (void)mode, OK; }
