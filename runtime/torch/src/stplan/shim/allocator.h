// allocator.h: torch's allocator interface for CUDA, served by the C runtime. Requests
// that the runtime does not serve go to torch's native allocator, which was there before.
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

// rounded is what a request counts as, in bytes: the next multiple of 512.
inline size_t rounded(size_t size) { return (size + 511) / 512 * 512; }

// Device is one device as the program sees it. It is never destroyed.
// SharedFile is a file by which other processes map a granule. It is open as long as one of
// the blocks lives that are shared and have bytes there.
struct SharedFile {
  int file = -1;
  size_t blocks = 0;
};

struct Device {
  DeviceIndex index = 0;
  bool opened = false; // open has run; protected by Allocator::opening_
  bool planned = false; // the plan has a part for this device
  std::atomic<stplan_device*> runtime{nullptr}; // nullptr: not opened, or the native allocator serves the device
  std::atomic<uint64_t> readings{0}; // number of calls of note_native so far
  std::mutex beside; // held while note_native passes a reading to the runtime; protects told
  uint64_t told = 0; // number of the latest reading that was passed on
  std::atomic<int64_t> out_of_memory{0}, retries{0};
  std::atomic<size_t> allowed{0}; // bytes that the memory fraction allows; 0: no limit
  Routes routes;
  History history;
  std::mutex sharing; // protects both
  std::map<uint64_t, SharedFile> files; // by the granule's address
  std::unordered_map<uint64_t, std::vector<uint64_t>> shared; // the granules of a block that is shared, by its address
  std::atomic<size_t> shared_count{0}; // number of those blocks
};

class Allocator final : public Delegating {
 public:
  // plain says that the runtime takes memory by cudaMalloc. Otherwise it is virtual
  // memory, which cudaMemcpyAsync does not copy between devices.
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

  // forked says that this is a forked child of a process that used CUDA: nothing is
  // freed here.
  bool forked() const { return unusual_.load(std::memory_order_relaxed) & kForked; }

  // free is what the deleter does in any other process.
  void free(void* pointer);
  void after_fork();

  // saw is called when the runtime takes memory from the device or gives it back.
  void saw(Device& device, stplan_event event, uint64_t address, uint64_t size) noexcept;

  // pin pins memory of a live block, or unpins it. It returns false if the runtime has no
  // such block, or no such pin.
  bool pin(uint64_t address, uint64_t size, bool pinned);

  // pause gives the idle memory of a device back, or of all devices if `device` is negative,
  // and the native allocator's. resume takes back what the runtime gave, up to `most` bytes
  // on each device. survey says where a device's memory is, and how much the native allocator
  // has of it; it returns false if the runtime does not serve the device.
  stplan_status pause(int device, uint64_t* given);
  stplan_status resume(int device, uint64_t most, uint64_t* taken);
  bool survey(int device, stplan_memory* memory, uint64_t* native);

  // mark says that a step of the program begins.
  void mark();

  // exchange_begins says that an exchange with another process is about to be enqueued on a
  // device, and returns its number; exchange_enqueued, that the call which was to do that has
  // returned or failed; exchange_awaited, that a stream has been made to wait for it. The
  // device need not be open.
  uint64_t exchange_begins(DeviceIndex device);
  void exchange_enqueued(DeviceIndex device, uint64_t exchange);
  void exchange_awaited(DeviceIndex device, uint64_t exchange, uint64_t stream);

  // read copies a device's counters; it returns false if the runtime does not serve
  // the device.
  bool read(int device, stplan_counters* counters);

 private:
  // States in which a request cannot take its short path. Usually none holds, and one
  // load of unusual_ shows that.
  enum Unusual : uint32_t { kForked = 1, kDisabled = 2, kWatched = 4 };

  Device& at(DeviceIndex device);

  void set_unusual(Unusual what, bool holds);

  // served returns the device's runtime, opened at first use, or nullptr if the native
  // allocator serves the device.
  stplan_device* served(Device& device) {
    stplan_device* runtime = device.runtime.load(std::memory_order_acquire);
    return C10_LIKELY(runtime != nullptr) ? runtime : open(device);
  }
  stplan_device* open(Device& device);

  // owner returns the device whose runtime has a live block at the pointer. It returns
  // nullptr if the block is the native allocator's, or if there is none.
  Device* owner(const void* pointer);

  // captures says whether requests of some capture or MemPool are being routed.
  bool captures();
  uint64_t native_reserved(int device);

  void* serve(Device& device, size_t size, cudaStream_t stream);
  void* watched(Device& device, uint64_t address, size_t size, cudaStream_t stream, const Context& context);
  void* serve_watched(Device& device, stplan_device* runtime, size_t size, cudaStream_t stream);
  void* failed(Device& device, size_t size, cudaStream_t stream, stplan_status status);
  void* exhausted(Device& device, size_t size, cudaStream_t stream);
  [[noreturn]] void out_of_memory(Device& device, size_t size, cudaStream_t stream);
  void* delegate(Device& device, size_t size, cudaStream_t stream);
  bool release(void* pointer);
  void release_untracked(void* pointer);
  void record_free(Device& device, uint64_t address);

  // note_native tells the runtime what the native allocator holds now, and with that how
  // much of the memory fraction is left.
  void note_native(Device& device);
  void note_native_if_served(DeviceIndex device);
  void own(DataPtr& data);
  char handle_version();
  std::vector<int> share(Device& device, uint64_t address, const std::vector<uint64_t>& granules);
  void unshare(Device& device, uint64_t address);
  static void close_unused(Device& device, const std::vector<uint64_t>& granules);
  void add_segments(Device& device, std::vector<SegmentInfo>& segments);

  // every visits all devices; each visits those that the runtime serves.
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
  std::atomic<int> count_{0}; // number of devices_ in use; it only grows
  std::array<Device*, STPLAN_DEVICES> devices_{};
  std::mutex opening_; // held while a device is opened or its routes change
  std::mutex observing_;
  std::vector<cca::OutOfMemoryObserver> observers_;
  bool recording_ = false, tracked_ = false;
  c10::ApproximateClockToUnixTimeConverter clock_; // more exact the longer it exists

  // The streams that use a block and that the runtime cannot track, because there are
  // too many streams or the stream is another device's. The free of such a block waits
  // for them.
  std::mutex untracked_lock_;
  std::unordered_map<void*, std::vector<CUDAStream>> untracked_;
  std::atomic<size_t> untracked_count_{0};
};

// installed is this process's allocator, nullptr before it is installed.
extern Allocator* installed;

// free_block is the deleter that torch calls when a block's last owner is gone.
void free_block(void* pointer);

} // namespace stplan
