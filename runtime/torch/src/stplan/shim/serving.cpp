// serving.cpp: requests, frees, and uses of blocks by other streams.
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include "allocator.h"

namespace stplan {

static void trace_allocation(void* pointer) {
  if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
    (*python)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
}

static void trace_deallocation(void* pointer) {
  if (const auto* python = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(python != nullptr))
    (*python)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(pointer));
}

static stplan_stream handle(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream); }

// report tells torch.profiler of an allocation or a free, if it profiles memory.
static void report(Device& device, void* pointer, int64_t bytes) {
  if (!c10::memoryProfilingEnabled())
    return;
  stplan_counters now;
  stplan_read(device.runtime.load(), &now);
  c10::reportMemoryUsageToProfiler(pointer, bytes, now.allocated_bytes, now.reserved_bytes,
                                   c10::Device(c10::DeviceType::CUDA, device.index));
}

// handed_out reports a new block to torch's tools and returns its pointer.
static void* handed_out(Device& device, uint64_t address, size_t size) {
  void* pointer = reinterpret_cast<void*>(address);
  trace_allocation(pointer);
  report(device, pointer, static_cast<int64_t>(rounded(size)));
  return pointer;
}

// note_source makes the runtime print a message, once, if a plan does not serve.
static void note_source(Device& device, stplan_source source) {
  if (source != STPLAN_FROM_PLAN && device.planned)
    stplan_off_plan(device.index);
}

DataPtr Allocator::allocate(size_t size) {
  constexpr size_t kExabyte = size_t(1) << 60;
  TORCH_CHECK_WITH(OutOfMemoryError, size < kExabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  if (C10_UNLIKELY(unusual_.load(std::memory_order_relaxed) & (kForked | kDisabled)))
    return native_->allocate(size);
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  void* pointer = size == 0 ? nullptr : serve(at(device), size, c10::cuda::getCurrentCUDAStream(device));
  return {pointer, pointer, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
}

void* Allocator::raw_alloc(size_t size) {
  if (size == 0)
    return nullptr;
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(device));
}

void* Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  if (size == 0)
    return nullptr;
  if (C10_UNLIKELY(unusual_.load(std::memory_order_relaxed) & (kForked | kDisabled)))
    return native_->raw_alloc_with_stream(size, stream);
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return serve(at(device), size, stream);
}

void* Allocator::serve(Device& device, size_t size, cudaStream_t stream) {
  stplan_device* runtime = served(device);
  if (C10_UNLIKELY(runtime == nullptr || (device.routes.count() != 0 && device.routes.claims(stream))))
    return delegate(device, size, stream);
  if (C10_UNLIKELY(unusual_.load(std::memory_order_relaxed) & kWatched))
    return serve_watched(device, runtime, size, stream);
  stplan_source source;
  stplan_status status;
  const uint64_t address = stplan_malloc(runtime, size, handle(stream), &source, &status);
  if (C10_UNLIKELY(address == 0))
    return failed(device, size, stream, status);
  note_source(device, source);
  return handed_out(device, address, size);
}

// serve_watched does the same while history is recorded.
void* Allocator::serve_watched(Device& device, stplan_device* runtime, size_t size, cudaStream_t stream) {
  const Context context = device.history.gather(RecordContext::STATE);
  const Calling calling(context);
  stplan_source source;
  stplan_status status;
  const uint64_t address = stplan_malloc(runtime, size, handle(stream), &source, &status);
  if (address == 0) {
    Raised::rethrow();
    return failed(device, size, stream, status);
  }
  note_source(device, source);
  return watched(device, address, size, stream, context);
}

// watched records a new block and returns its pointer. If a tracker has thrown, the block is
// freed again.
void* Allocator::watched(Device& device, uint64_t address, size_t size, cudaStream_t stream, const Context& context) {
  device.history.add(TraceEntry::ALLOC, device.index, address, size, stream, context);
  if (Raised::waits()) {
    record_free(device, address);
    stplan_release(device.runtime.load(), address, nullptr);
    Raised::rethrow();
  }
  return handed_out(device, address, size);
}

// failed serves a request that the runtime refused.
void* Allocator::failed(Device& device, size_t size, cudaStream_t stream, stplan_status status) {
  return status == STPLAN_NO_MEMORY ? exhausted(device, size, stream) : delegate(device, size, stream);
}

// delegate passes a request to the native allocator. If that runs out of memory, the
// runtime gives its idle memory back to the device and the request is repeated.
void* Allocator::delegate(Device& device, size_t size, cudaStream_t stream) {
  stplan_device* runtime = device.runtime.load();
  void* pointer = nullptr;
  try {
    pointer = native_->raw_alloc_with_stream(size, stream);
  } catch (const c10::OutOfMemoryError&) {
    if (runtime == nullptr || stplan_empty_cache(runtime) == 0)
      throw;
    Raised::rethrow();
    pointer = native_->raw_alloc_with_stream(size, stream);
  }
  if (runtime != nullptr)
    note_native(device);
  return pointer;
}

// exhausted repeats a request after torch's memory callbacks and the native allocator's
// cache have given back their idle memory.
void* Allocator::exhausted(Device& device, size_t size, cudaStream_t stream) {
  const auto callbacks = c10::FreeCudaMemoryCallbacksRegistry();
  for (const auto& name : callbacks->Keys())
    callbacks->Create(name)->Execute();
  if (!captures()) // which must not be interrupted
    Delegating::emptyCache({0, 0});
  note_native(device);
  device.retries.fetch_add(1, std::memory_order_relaxed);
  const uint64_t address = stplan_malloc(device.runtime.load(), size, handle(stream), nullptr, nullptr);
  if (address == 0)
    out_of_memory(device, size, stream);
  if (unusual_.load(std::memory_order_relaxed) & kWatched)
    return watched(device, address, size, stream, Calling::now());
  return handed_out(device, address, size);
}

void Allocator::out_of_memory(Device& device, size_t size, cudaStream_t stream) {
  const auto [available, total] = getMemoryInfo(device.index);
  const size_t allowed = device.allowed.load();
  stplan_counters ours;
  stplan_read(device.runtime.load(), &ours);
  const DeviceStats theirs = native_->getDeviceStats(device.index);
  device.out_of_memory.fetch_add(1, std::memory_order_relaxed);
  if (unusual_.load(std::memory_order_relaxed) & kWatched)
    device.history.add(TraceEntry::OOM, device.index, available, rounded(size), stream, Calling::now());
  Raised::rethrow();
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), ours.allocated_bytes, ours.reserved_bytes,
                                   c10::Device(c10::DeviceType::CUDA, device.index));
  std::vector<cca::OutOfMemoryObserver> observers;
  {
    std::lock_guard<std::mutex> lock(observing_);
    observers = observers_;
  }
  for (const auto& observer : observers)
    observer(device.index, size, allowed != 0 ? allowed : total, available);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_size(size), ". GPU ",
                   static_cast<int>(device.index), " has a total capacity of ", format_size(total), " of which ",
                   format_size(available), " is free. ", allowed != 0 ? format_size(allowed) + " allowed; " : "",
                   "Of the memory that stplan serves ", format_size(ours.allocated_bytes),
                   " is allocated by PyTorch, and ", format_size(ours.reserved_bytes - ours.allocated_bytes),
                   " is reserved but unallocated. PyTorch's own allocator has reserved another ",
                   format_size(theirs.reserved_bytes[0].current), ".");
}

void Allocator::raw_delete(void* pointer) { free_block(pointer); }

c10::DeleterFnPtr Allocator::raw_deleter() const { return &free_block; }

void free_block(void* pointer) {
  // A forked child has its parent's pointers, but not the memory that they point to.
  if (pointer == nullptr || installed->forked())
    return;
  installed->free(pointer);
}

void Allocator::free(void* pointer) {
  if (C10_UNLIKELY(untracked_count_.load(std::memory_order_acquire) != 0))
    release_untracked(pointer);
  if (C10_LIKELY(release(pointer)))
    return;
  native_->raw_delete(pointer);
  each([this](Device& d, stplan_device*) { note_native(d); });
}

// release frees a block of the runtime; it returns false if the block is not one of its.
bool Allocator::release(void* pointer) {
  const uint64_t address = reinterpret_cast<uintptr_t>(pointer);
  for (int i = 0, n = count_.load(std::memory_order_acquire); i < n; i++) {
    Device& d = *devices_[i];
    stplan_device* runtime = d.runtime.load(std::memory_order_acquire);
    if (runtime == nullptr)
      continue;
    if (C10_UNLIKELY(unusual_.load(std::memory_order_relaxed) & kWatched))
      record_free(d, address);
    if (C10_UNLIKELY(d.shared_count.load(std::memory_order_relaxed) != 0))
      unshare(d, address);
    stplan_range block;
    if (stplan_release(runtime, address, &block) != STPLAN_OK)
      continue;
    trace_deallocation(pointer);
    report(d, pointer, -static_cast<int64_t>(rounded(block.requested)));
    if (C10_UNLIKELY(unusual_.load(std::memory_order_relaxed) & kWatched))
      Raised::rethrow();
    return true;
  }
  return false;
}

// record_free is called before the free itself, so that the next allocation at the
// address is recorded later. It records the free as completed at once: streams that reuse
// the memory wait on the device.
void Allocator::record_free(Device& device, uint64_t address) {
  stplan_range block;
  if (stplan_find(device.runtime.load(), address, &block) != STPLAN_OK)
    return;
  const Context context = device.history.gather(RecordContext::ALL);
  for (auto action : {TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED})
    device.history.add(action, device.index, address, block.requested, reinterpret_cast<void*>(block.stream), context);
}

Device* Allocator::owner(const void* pointer) {
  Device* found = nullptr;
  each([&](Device& d, stplan_device* runtime) {
    stplan_range block;
    if (found == nullptr && stplan_find(runtime, reinterpret_cast<uintptr_t>(pointer), &block) == STPLAN_OK)
      found = &d;
  });
  return found;
}

void Allocator::recordStream(const DataPtr& data, CUDAStream stream) {
  if (data.get() == nullptr || forked())
    return;
  if (data.get_deleter() != &free_block)
    return native_->recordStream(data, stream);
  Device* d = owner(data.get());
  if (d == nullptr) {
    // torch recognises blocks of the native allocator by their deleter.
    DataPtr own(data.get(), data.get(), native_->raw_deleter(), data.device());
    try {
      native_->recordStream(own, stream);
    } catch (...) {
      own.release_context();
      throw;
    }
    own.release_context();
    return;
  }
  // An event belongs to one device, and the default streams of all devices have the same
  // handle. So a stream of another device is not passed to the runtime.
  const uint64_t address = reinterpret_cast<uintptr_t>(data.get());
  if (stream.device_index() != d->index ||
      stplan_record_stream(d->runtime.load(), address, handle(stream.stream())) == STPLAN_BAD_STREAM) {
    std::lock_guard<std::mutex> lock(untracked_lock_);
    untracked_[data.get()].push_back(stream);
    untracked_count_.store(untracked_.size(), std::memory_order_release);
  }
}

// wait_for makes the host wait for a stream. It must not throw: deleters call it.
static void wait_for(const CUDAStream& stream) {
  try {
    const c10::cuda::CUDAGuard guard(stream.device());
    const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed); // the wait is not captured
    if (cudaStreamSynchronize(stream.stream()) == cudaSuccess)
      return;
    (void)cudaDeviceSynchronize(); // the stream was destroyed, but its work may be unfinished
    (void)cudaGetLastError();
  } catch (const c10::Error&) {
    // The device cannot be used any more, so no work is left to wait for.
  }
}

// release_untracked waits for the streams that use the block and that the runtime could
// not track.
void Allocator::release_untracked(void* pointer) {
  std::vector<CUDAStream> streams;
  {
    std::lock_guard<std::mutex> lock(untracked_lock_);
    auto found = untracked_.find(pointer);
    if (found == untracked_.end())
      return;
    streams = std::move(found->second);
    untracked_.erase(found);
    untracked_count_.store(untracked_.size(), std::memory_order_release);
  }
  for (const CUDAStream& stream : streams)
    wait_for(stream);
}

} // namespace stplan
