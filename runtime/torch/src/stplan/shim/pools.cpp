// pools.cpp: memory of graph captures and MemPools, which is the native
// allocator's: a graph keeps its addresses for as long as it lives.
#include "allocator.h"

namespace stplan {

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
  native_->beginAllocateToPool(device, pool, filter);
  Device& d = at(device);
  std::lock_guard<std::mutex> lock(opening_);
  d.routes.begin(pool, std::move(filter));
  if (stplan_device* runtime = d.runtime.load())
    stplan_hold(runtime, 1);
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  native_->endAllocateToPool(device, pool);
  Device& d = at(device);
  std::lock_guard<std::mutex> lock(opening_);
  stplan_device* runtime = d.runtime.load();
  if (d.routes.end(pool) && runtime != nullptr)
    stplan_hold(runtime, 0);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  native_->releasePool(device, pool);
  note_native_if_served(device);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t pool) { return native_->getPoolUseCount(device, pool); }

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> allocator) {
  native_->createOrIncrefPool(device, pool, std::move(allocator));
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) {
  native_->setUseOnOOM(device, pool, use);
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t pool) { native_->setNoSplit(device, pool); }

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                         const std::unordered_set<void*>& expected) {
  return native_->checkPoolLiveAllocations(device, pool, expected);
}

std::shared_ptr<cca::AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t pool) {
  return native_->getCheckpointState(device, pool);
}

cca::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) {
  cca::CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
  // Torch compares deleters: every block of the program has the same.
  for (auto& data : delta.dataptrs_allocd)
    TORCH_CHECK(data.compare_exchange_deleter(native_->raw_deleter(), &free_block),
                "a block of a pool has an unknown deleter");
  note_native_if_served(device);
  return delta;
}

} // namespace stplan
