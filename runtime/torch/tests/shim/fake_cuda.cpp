// fake_cuda.cpp: the functions of CUDA's runtime that torch calls to allocate,
// without a device. Memory is address space without access, and nothing is
// computed. These functions take the place of the real ones, because the linker
// looks for a symbol in the executable and in preloaded libraries first.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "fake_cuda.h"

static std::mutex lock;
static std::map<void*, size_t> given;
static size_t used = 0;
static int events = 0;

size_t fake_cuda_used() {
  std::lock_guard<std::mutex> guard(lock);
  return used;
}

int fake_cuda_waits() { return events; }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = FAKE_CUDA_DEVICES, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return events++, cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}

#if CUDART_VERSION >= 13000 // torch 2.15 calls this instead
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  return cudaStreamIsCapturing(stream, status);
}
#endif

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = kFakeCudaTotal;
  properties->major = 9; // torch warns of devices that it was not built for
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *total = kFakeCudaTotal;
  *available = kFakeCudaTotal - fake_cuda_used();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t size) {
  std::lock_guard<std::mutex> guard(lock);
  if (size > kFakeCudaTotal - used)
    return cudaErrorMemoryAllocation;
  *pointer = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*pointer == MAP_FAILED)
    return cudaErrorMemoryAllocation;
  given[*pointer] = size;
  used += size;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = given.find(pointer);
  if (found == given.end())
    return cudaErrorInvalidValue;
  munmap(pointer, found->second);
  used -= found->second;
  given.erase(found);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  static uintptr_t next = 0x7000;
  return *stream = reinterpret_cast<cudaStream_t>(next += 16), cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void*) {
  std::memset(handle, 5, sizeof *handle);
  return cudaSuccess;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t) {
  std::memset(handle, 6, sizeof *handle);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(&events), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return events++, cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
}
