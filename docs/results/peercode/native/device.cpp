#include "device.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "cuda.h"
#include "cuda_runtime_api.h"

namespace {

// Address space is taken in units of this, as CUDA does on Linux.
constexpr uint64_t kUnit = 32ull << 20;

std::map<size_t, std::deque<uint64_t>> addresses;
uint64_t lowest = 1ull << 46, spaces = 1ull << 47;
bool rising = false, full = false;
size_t used = 0, most_used = 0, memory = size_t{1} << 46;
std::unordered_map<uint64_t, size_t> blocks;   // by address
std::unordered_map<uint64_t, size_t> handles;  // physical memory
uint64_t last_handle = 0;
std::unordered_set<uint64_t> busy;

bool take(size_t size) {
  if (full || used + size > memory) return false;
  used += size;
  most_used = std::max(most_used, used);
  return true;
}

uint64_t units(size_t size) { return (size + kUnit - 1) / kUnit * kUnit; }

}  // namespace

struct CUevent_st {
  uint64_t stream;
};

void device_address(size_t size, uint64_t at) { addresses[size].push_back(at); }

void device_addresses(uint64_t below, uint64_t reserved, bool up) {
  lowest = below;
  spaces = reserved;
  rising = up;
}

void device_memory(size_t size) { memory = size; }

void device_full(bool f) { full = f; }

size_t device_used() { return used; }
size_t device_most_used() { return most_used; }

void device_busy(uint64_t stream, bool b) {
  if (b)
    busy.insert(stream);
  else
    busy.erase(stream);
}

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return "error of the simulated device"; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }

cudaError_t cudaMalloc(void** at, size_t size) {
  if (!take(size)) return cudaErrorMemoryAllocation;
  uint64_t a;
  auto& known = addresses[size];
  if (!known.empty()) {
    a = known.front();
    known.pop_front();
  } else {
    a = lowest -= units(size);
  }
  blocks[a] = size;
  *at = reinterpret_cast<void*>(a);
  return cudaSuccess;
}

cudaError_t cudaFree(void* at) {
  auto b = blocks.find(reinterpret_cast<uint64_t>(at));
  if (b == blocks.end()) return cudaErrorInvalidValue;
  used -= b->second;
  blocks.erase(b);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  *total = memory;
  *unused = full ? 0 : memory - used;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDA_VERSION, cudaSuccess; }

cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) { return cudaSuccess; }
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, enum cudaStreamCaptureStatus* status, unsigned long long*) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st{0};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = reinterpret_cast<uint64_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return busy.count(event->stream) ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned int) { return cudaErrorInvalidValue; }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaErrorInvalidValue; }

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "error of the simulated device";
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(int* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, int) {
  return *bytes = size_t{2} << 20, CUDA_SUCCESS;
}

CUresult cuMemCreate(unsigned long long* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
  if (!take(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  handles[*handle = ++last_handle] = size;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(unsigned long long handle) {
  auto h = handles.find(handle);
  if (h == handles.end()) return CUDA_ERROR_INVALID_VALUE;
  used -= h->second;
  handles.erase(h);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, size_t size, size_t, CUdeviceptr, unsigned long long) {
  if (rising) {
    *at = spaces;
    spaces += units(size);
  } else {
    *at = spaces -= units(size);
  }
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemMap(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long) { return CUDA_SUCCESS; }
CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
}
