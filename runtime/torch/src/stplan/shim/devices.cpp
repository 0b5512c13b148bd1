// devices.cpp: devices and their limits.
#include "allocator.h"

namespace stplan {

Allocator::Allocator(CUDAAllocator* native, bool plain) : Delegating(native), plain_(plain) {}

void Allocator::init(int count) {
  native_->init(count);
  std::lock_guard<std::mutex> lock(opening_);
  for (int i = count_.load(std::memory_order_relaxed); i < std::min<int>(count, STPLAN_DEVICES); i++) {
    devices_[i] = new Device;
    devices_[i]->index = static_cast<DeviceIndex>(i);
    count_.store(i + 1, std::memory_order_release);
  }
}

Device& Allocator::at(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < count_.load(std::memory_order_acquire), "Invalid device argument ",
              static_cast<int>(device), ": did you call init?");
  return *devices_[device];
}

// see is called by the runtime when it takes memory and when it gives memory back.
static void see(void* device, stplan_event event, uint64_t address, uint64_t size) {
  installed->saw(*static_cast<Device*>(device), event, address, size);
}

stplan_device* Allocator::open(Device& device) {
  std::lock_guard<std::mutex> lock(opening_);
  if (device.opened)
    return device.runtime.load(std::memory_order_relaxed);
  device.opened = true;
  stplan_device* runtime = stplan_at(device.index);
  if (runtime == nullptr)
    return nullptr;
  device.planned = stplan_planned(device.index) != 0;
  stplan_watch(runtime, see, &device);
  device.runtime.store(runtime, std::memory_order_release);
  const double fraction = native_->getMemoryFraction(device.index); // PYTORCH_CUDA_ALLOC_CONF may set it
  if (fraction < 1)
    device.allowed.store(static_cast<size_t>(fraction * static_cast<double>(getMemoryInfo(device.index).second)));
  note_native(device);
  return runtime;
}

void Allocator::set_unusual(Unusual what, bool holds) {
  if (holds)
    unusual_.fetch_or(what);
  else
    unusual_.fetch_and(~static_cast<uint32_t>(what));
}

// A disabled allocator takes every block from the driver and gives it back to the driver.
void Allocator::enable(bool value) {
  native_->enable(value);
  set_unusual(kDisabled, !native_->isEnabled());
}

// If the parent has not used CUDA, the child is served like the parent. Otherwise CUDA
// does not work in the child, and no lock may be taken: the thread that held it at the
// fork does not exist here.
void Allocator::after_fork() {
  if (!native_->initialized())
    return;
  set_unusual(kForked, true);
  every([](Device& d) { d.runtime.store(nullptr); });
}

void Allocator::emptyCache(MempoolId_t pool) {
  Delegating::emptyCache(pool);
  each([&](Device& d, stplan_device* runtime) {
    if (pool == MempoolId_t{0, 0}) {
      // Torch records who emptied the cache at this level.
      const Context context = d.history.gather(RecordContext::ALL);
      Calling calling(context);
      stplan_empty_cache(runtime);
    }
    note_native(d);
  });
  Raised::rethrow();
}

void Allocator::cacheInfo(DeviceIndex device, size_t* largest) {
  native_->cacheInfo(device, largest);
  if (stplan_device* runtime = at(device).runtime.load())
    *largest = std::max<size_t>(*largest, stplan_largest(runtime));
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
  native_->setMemoryFraction(fraction, device);
  Device& d = at(device);
  const auto total = static_cast<double>(getMemoryInfo(device).second);
  d.allowed.store(fraction < 1 ? std::max<size_t>(1, static_cast<size_t>(fraction * total)) : 0);
  if (d.runtime.load() != nullptr)
    note_native(d);
}

void Allocator::attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) {
  native_->attachOutOfMemoryObserver(observer);
  std::lock_guard<std::mutex> lock(observing_);
  observers_.push_back(std::move(observer));
}

uint64_t Allocator::exchange_begins(DeviceIndex device) {
  return forked() ? 0 : stplan_exchange_begins_at(device);
}

void Allocator::exchange_enqueued(DeviceIndex device, uint64_t exchange) {
  if (!forked())
    stplan_exchange_enqueued_at(device, exchange);
}

void Allocator::exchange_awaited(DeviceIndex device, uint64_t exchange, uint64_t stream) {
  if (!forked())
    stplan_exchange_awaited_at(device, exchange, stream);
}

bool Allocator::pin(uint64_t address, uint64_t size, bool pinned) {
  bool done = false;
  each([&](Device&, stplan_device* runtime) {
    done = done || (pinned ? stplan_pin : stplan_unpin)(runtime, address, size) == STPLAN_OK;
  });
  return done;
}

void Allocator::mark() {
  each([](Device&, stplan_device* runtime) { stplan_mark(runtime); });
}

} // namespace stplan
