// allocator.h: torch's allocator interface for CUDA, served by the C runtime and,
// for what that does not serve, by the native allocator that was there before.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "delegating.h"
#include "history.h"
#include "process.h"
#include "routes.h"

namespace stplan {

// One device as the program sees it. It is never destroyed.
struct Device {
  DeviceIndex index = 0;
  bool opened = false; // the runtime was asked for
  bool planned = false;
  std::atomic<stplan_device*> runtime{nullptr}; // nullptr: not opened, or the native allocator serves the device
  std::atomic<uint64_t> readings{0}; // so many of what the native allocator holds have begun
  std::mutex beside; // while the runtime is told of one
  uint64_t told = 0; // which one was told last
  std::atomic<int64_t> out_of_memory{0}, retries{0};
  std::atomic<size_t> allowed{0}; // bytes that the memory fraction allows; 0: all
  Routes routes;
  History history;
  std::mutex sharing;
  std::map<uint64_t, int> shared_files; // by granule: what other processes map it by
};

class Allocator final : public Delegating {
 public:
  // The native allocator, and whether the runtime takes memory that
  // cudaMemcpyAsync does not copy between devices.
  Allocator(CUDAAllocator* native, bool plain);

  // serving.cpp
  DataPtr allocate(size_t size) override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  c10::DeleterFnPtr raw_deleter() const override;
  using Delegating::recordStream;
  void recordStream(const DataPtr& data, CUDAStream stream) override;

  // devices.cpp
  void init(int count) override;
  void enable(bool value) override;
  void emptyCache(MempoolId_t pool) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override;

  // statistics.cpp
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;

  // snapshot.cpp
  cca::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;
  void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
#if STPLAN_TORCH(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override;
#endif
#if STPLAN_TORCH(14)
  void annotateMemory(const void* pointer, const std::string& metadata) override;
#endif
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  // pools.cpp
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void releasePool(DeviceIndex device, MempoolId_t pool) override;
  cca::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) override;
#if STPLAN_TORCH(13)
  DataPtr allocateWithAddress(size_t size, void* address) override;
#endif

  // sharing.cpp
  void* getBaseAllocation(void* pointer, size_t* size) override;
  cca::ShareableHandle shareIpcHandle(void* pointer) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex to) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t count,
                          cudaStream_t stream, bool peers) override;

  // What the deleter does: forked() says that this is a forked child, where nothing
  // is freed.
  bool forked() const { return unusual_.load(std::memory_order_relaxed) & kForked; }
  void free(void* pointer);
  void after_fork();

  // saw is told of memory that the runtime takes or gives back.
  void saw(Device& device, bool taken, uint64_t address, uint64_t size);

  // A step of the program begins.
  void mark();

  // read copies a device's counters; false where the runtime does not serve it.
  bool read(int device, stplan_counters* counters);

 private:
  // What keeps requests from their short way. Usually none holds, and one load
  // tells.
  enum Unusual : uint32_t { kForked = 1, kDisabled = 2, kWatched = 4 };

  Device& at(DeviceIndex device);
  void set_unusual(Unusual what, bool holds);

  // served is the device's runtime, which is opened at first use, or nullptr.
  stplan_device* served(Device& device) {
    stplan_device* runtime = device.runtime.load(std::memory_order_acquire);
    return C10_LIKELY(runtime != nullptr) ? runtime : open(device);
  }
  stplan_device* open(Device& device);

  // owner is the device whose live block the pointer is, or nullptr: then it is
  // the native allocator's, or nobody's.
  Device* owner(const void* pointer);

  void* serve(Device& device, size_t size, cudaStream_t stream);
  void* serve_watched(Device& device, stplan_device* runtime, size_t size, cudaStream_t stream);
  void* failed(Device& device, size_t size, cudaStream_t stream, stplan_status status);
  void* exhausted(Device& device, size_t size, cudaStream_t stream);
  [[noreturn]] void out_of_memory(Device& device, size_t size, cudaStream_t stream);
  void* delegate(Device& device, size_t size, cudaStream_t stream);
  bool release(void* pointer);
  void release_untracked(void* pointer);
  void record_free(Device& device, uint64_t address);

  // note_native tells the runtime what the native allocator holds by now, and so
  // how much is left of the memory fraction.
  void note_native(Device& device);
  void note_native_if_served(DeviceIndex device);
  void own(DataPtr& data);
  char handle_version();
  int shared_file(Device& device, uint64_t granule);
  void unshare(Device& device, uint64_t address, uint64_t size);
  void add_segments(Device& device, std::vector<SegmentInfo>& segments);

  // every visits all devices, each those that the runtime serves.
  template <typename Visit>
  void every(Visit visit) {
    for (int i = 0, n = count_.load(std::memory_order_acquire); i < n; i++)
      visit(*devices_[i]);
  }
  template <typename Visit>
  void each(Visit visit) {
    every([&](Device& d) {
      if (stplan_device* runtime = d.runtime.load(std::memory_order_acquire); runtime != nullptr)
        visit(d, runtime);
    });
  }

  const bool plain_;
  std::atomic<uint32_t> unusual_{0};
  std::atomic<int> count_{0}; // of devices_; it only grows
  std::array<Device*, STPLAN_DEVICES> devices_{};
  std::mutex opening_; // opening a device, and its routes
  std::mutex observing_;
  std::vector<cca::OutOfMemoryObserver> observers_;
  bool recording_ = false, tracked_ = false;
  c10::ApproximateClockToUnixTimeConverter clock_; // the longer it runs, the better it tells

  // Blocks that streams use which the runtime cannot keep track of, as there are too
  // many or they are another device's: their frees wait for them.
  std::mutex untracked_lock_;
  std::unordered_map<void*, std::vector<CUDAStream>> untracked_;
  std::atomic<size_t> untracked_count_{0};
};

// The one of this process, nullptr before it is installed.
extern Allocator* installed;

// What torch calls when a block's last owner is gone.
void free_block(void* pointer);

} // namespace stplan
