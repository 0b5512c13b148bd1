// pools.cpp: memory of graph captures and MemPools. The native allocator serves it,
// because a graph keeps its addresses as long as it exists.
#include "allocator.h"

namespace stplan {

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
  stplan_captures();
  native_->beginAllocateToPool(device, pool, filter);
  at(device).routes.begin(pool, std::move(filter));
  stplan_hold(1);
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  native_->endAllocateToPool(device, pool);
  if (at(device).routes.end(pool))
    stplan_hold(0);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  native_->releasePool(device, pool);
  note_native_if_served(device);
}

cca::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) {
  cca::CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
  for (auto& data : delta.dataptrs_allocd)
    own(data);
  note_native_if_served(device);
  return delta;
}

bool Allocator::captures() {
  bool any = false;
  every([&](Device& d) { any = any || d.routes.count() != 0; });
  return any;
}

// own gives a block of the native allocator the shim's deleter. torch compares deleters,
// so all blocks of the program must have the same one.
void Allocator::own(DataPtr& data) {
  TORCH_CHECK(data.compare_exchange_deleter(native_->raw_deleter(), &free_block),
              "a block of the native allocator has an unknown deleter");
}

#if STPLAN_TORCH(13)
// A request for a given address goes to the native allocator: torch makes it to restore
// the memory of a captured graph.
DataPtr Allocator::allocateWithAddress(size_t size, void* address) {
  DataPtr data = native_->allocateWithAddress(size, address);
  if (data.get() != nullptr) {
    own(data);
    note_native_if_served(data.device().index());
  }
  return data;
}
#endif

} // namespace stplan
