// GMLake's allocator behind a pipe. Its own file is compiled as it is; this one has what
// PyTorch would give it besides: one device, and streams that are numbers.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "device.h"
#include "serve.h"

namespace c10 {
namespace cuda {

DeviceIndex device_count() noexcept { return 1; }
void warn_or_error_on_sync() {}

static CUDAStream numbered(uint64_t id) {
  return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::UNSAFE, Device(DeviceType::CUDA, 0), static_cast<StreamId>(id)));
}

cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(id()); }
CUDAStream getStreamFromPool(const bool, DeviceIndex) { return numbered(0); }
CUDAStream getDefaultCUDAStream(DeviceIndex) { return numbered(0); }
CUDAStream getCurrentCUDAStream(DeviceIndex) { return numbered(0); }
void setCurrentCUDAStream(CUDAStream) {}

void c10_cuda_check_implementation(const int32_t err, const char* file, const char*, const int line, const bool) {
  if (err != cudaSuccess) TORCH_CHECK(false, "CUDA error ", err, " at ", file, ":", line);
}

namespace CUDACachingAllocator {
namespace CudaMallocAsync {
CUDAAllocator* allocator() { return nullptr; }
}  // namespace CudaMallocAsync
}  // namespace CUDACachingAllocator

}  // namespace cuda
}  // namespace c10

using c10::cuda::CUDACachingAllocator::get;

void peer_begin() { get()->init(1); }

void* peer_alloc(size_t size, uint64_t stream) {
  try {
    return get()->raw_alloc_with_stream(size, reinterpret_cast<cudaStream_t>(stream));
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

void peer_free(void* at, size_t, uint64_t) { get()->raw_delete(at); }

void peer_free_busy(void* at, size_t, uint64_t, uint64_t user) {
  {
    c10::DataPtr whole(at, at, get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
    get()->recordStream(whole, c10::cuda::numbered(user));
  }  // whole ends here, and frees
}

void peer_empty_cache() { get()->emptyCache(); }

Usage peer_usage() {
  using namespace c10::cuda::CUDACachingAllocator;
  auto stats = get()->getDeviceStats(0);
  auto all = static_cast<size_t>(StatType::AGGREGATE);
  return {static_cast<size_t>(stats.reserved_bytes[all].current), static_cast<size_t>(stats.reserved_bytes[all].peak),
          static_cast<size_t>(stats.allocated_bytes[all].current)};
}
