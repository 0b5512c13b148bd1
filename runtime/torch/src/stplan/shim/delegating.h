// delegating.h: torch's allocator interface, with every request passed on to the native
// allocator. It has the functions of the newest release of torch; functions that older
// releases call are implemented here by those. So derived classes override one interface.
//
// Every virtual function is overridden, also those for which torch has a default: the
// default would answer in place of the native allocator (complete.h).
#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

#include "versions.h"

namespace stplan {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::cuda::CUDAStream;
using cca::CUDAAllocator;

class Delegating : public CUDAAllocator {
 public:
  explicit Delegating(CUDAAllocator* native) : native_(native) {}

  bool is_simple_data_ptr(const DataPtr& data) const override { return native_->is_simple_data_ptr(data); }
  void copy_data(void* to, const void* from, size_t count) const override { native_->copy_data(to, from, count); }
  bool initialized() override { return native_->initialized(); }
  bool isEnabled() const override { return native_->isEnabled(); }
  double getMemoryFraction(DeviceIndex device) override { return native_->getMemoryFraction(device); }
  // Frameworks decide by the name whether statistics and snapshots are available.
  std::string name() override { return native_->name(); }

#if STPLAN_TORCH(10)
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override { return native_->getMemoryInfo(device); }
  std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
#else
  // Free and total bytes of a device.
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) {
    const c10::DeviceGuard guard({c10::DeviceType::CUDA, device});
    size_t available = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&available, &total));
    return {available, total};
  }
#endif

  using CUDAAllocator::recordStream;
#if STPLAN_TORCH(9)
  void recordStream(const DataPtr& data, c10::Stream stream) override { recordStream(data, CUDAStream(stream)); }
#endif

#if STPLAN_TORCH(8)
  void emptyCache(MempoolId_t pool) override { native_->emptyCache(pool); }
#else
  void emptyCache() final { emptyCache({0, 0}); }
  virtual void emptyCache(MempoolId_t) { native_->emptyCache(); }
#endif

  // Pools.
#if STPLAN_TORCH(11)
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> allocator) override {
    native_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override { native_->setUseOnOOM(device, pool, use); }
#elif STPLAN_TORCH(8)
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, CUDAAllocator* allocator) override {
    native_->createOrIncrefPool(device, pool, allocator);
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool) override { native_->setUseOnOOM(device, pool); }
#else
  void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t pool) override {
    native_->ensureExistsAndIncrefPool(device, pool);
  }
#endif
#if STPLAN_TORCH(10)
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override { native_->setNoSplit(device, pool); }
#endif
#if STPLAN_TORCH(13)
  void markCaptureBegin(DeviceIndex device) override { native_->markCaptureBegin(device); }
  void markCaptureEnd(DeviceIndex device) override { native_->markCaptureEnd(device); }
#endif
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override { return native_->getPoolUseCount(device, pool); }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override {
    return native_->getCheckpointState(device, pool);
  }

  // Snapshots and recorded history.
#if STPLAN_TORCH(11)
  cca::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override {
    return native_->snapshot(pool, include_traces);
  }
  void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    native_->recordHistory(enabled, context, most, when, clear, skip);
  }
#elif STPLAN_TORCH(8)
  cca::SnapshotInfo snapshot(MempoolId_t pool) final { return snapshot(pool, true); }
  virtual cca::SnapshotInfo snapshot(MempoolId_t pool, bool) { return native_->snapshot(pool); }
  void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear) final {
    recordHistory(enabled, context, most, when, clear, {});
  }
  virtual void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear,
                             const std::vector<std::string>&) {
    native_->recordHistory(enabled, context, most, when, clear);
  }
#else
  cca::SnapshotInfo snapshot() final { return snapshot({0, 0}, true); }
  virtual cca::SnapshotInfo snapshot(MempoolId_t, bool) { return native_->snapshot(); }
  void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when) final {
    recordHistory(enabled, context, most, when, false, {});
  }
  virtual void recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool,
                             const std::vector<std::string>&) {
    native_->recordHistory(enabled, context, most, when);
  }
#endif
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_->recordAnnotation(annotation);
  }
#if STPLAN_TORCH(8)
  void pushCompileContext(std::string& text) override { native_->pushCompileContext(text); }
  void popCompileContext() override { native_->popCompileContext(); }
#else
  virtual void pushCompileContext(std::string&) {}
  virtual void popCompileContext() {}
#endif
#if STPLAN_TORCH(10)
  void setUserMetadata(const std::string& text) override { native_->setUserMetadata(text); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
#else
  std::string getUserMetadata() { return ""; }
#endif
#if STPLAN_TORCH(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return native_->getContextForPointer(pointer);
  }
  void attachOomRejectionObserver(cca::OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
#endif
#if STPLAN_TORCH(14)
  bool supportsUserMetadata() override { return native_->supportsUserMetadata(); }
#endif

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native_->getIpcDevPtr(std::move(handle)); }

 protected:
  CUDAAllocator* const native_;
};

} // namespace stplan
