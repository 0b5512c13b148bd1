// statistics.cpp: the figures of the runtime and of the native allocator, added up.
#include "allocator.h"

namespace stplan {

enum { kAll, kSmall, kLarge }; // as in StatArray

// current_of copies the native allocator's current value.
static void current_of(stplan_stat& stat, const Stat& native) {
  stat.current = static_cast<uint64_t>(std::max<int64_t>(native.current, 0));
}

void Allocator::note_native(Device& device) {
  // Every change of what the native allocator holds is followed by a call of this
  // function, so the reading that began last has seen all changes, and older ones are
  // dropped. No lock of ours is held while reading: the native allocator may have called
  // us while it held its own.
  const uint64_t reading = device.readings.fetch_add(1) + 1;
  const DeviceStats s = native_->getDeviceStats(device.index);
  stplan_statistics native{};
  stplan_usage* kinds[] = {&native.all, &native.small, &native.large};
  for (int kind : {kAll, kSmall, kLarge}) {
    current_of(kinds[kind]->blocks, s.allocation[kind]);
    current_of(kinds[kind]->bytes, s.allocated_bytes[kind]);
    current_of(kinds[kind]->requested, s.requested_bytes[kind]);
  }
  current_of(native.reserved, s.reserved_bytes[kAll]);
  current_of(native.extents, s.segment[kAll]);
  std::lock_guard<std::mutex> lock(device.beside);
  if (reading < device.told)
    return;
  device.told = reading;
  stplan_device* runtime = device.runtime.load();
  stplan_beside(runtime, &native);
  // The memory fraction limits both allocators together.
  const size_t allowed = device.allowed.load(), reserved = native.reserved.current;
  stplan_set_limit(runtime, allowed == 0 ? 0 : allowed > reserved ? allowed - reserved : 1);
}

void Allocator::note_native_if_served(DeviceIndex device) {
  Device& d = at(device);
  if (d.runtime.load() != nullptr)
    note_native(d);
}

// add adds the runtime's figure to native's. The runtime keeps the peak of the sum.
static void add(Stat& into, const stplan_stat& ours) {
  into.peak = std::max(into.peak, static_cast<int64_t>(ours.peak));
  into.current += static_cast<int64_t>(ours.current);
  into.allocated += static_cast<int64_t>(ours.added);
  into.freed += static_cast<int64_t>(ours.removed);
}

// add_all does so for all of the runtime's blocks or memory. Its segments have blocks of any
// size, and a snapshot says that they are of torch's large pool, so all of them count there,
// as programs compare the two. The peak is that of the sum, less native's small pool.
static void add_all(StatArray& into, const stplan_stat& ours) {
  stplan_stat large = ours;
  large.peak -= std::min(large.peak, static_cast<uint64_t>(std::max<int64_t>(into[kSmall].current, 0)));
  add(into[kLarge], large);
  add(into[kAll], ours);
}

DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  Device& d = at(device);
  DeviceStats s = native_->getDeviceStats(device);
  stplan_device* runtime = d.runtime.load();
  if (runtime == nullptr)
    return s;
  stplan_statistics ours;
  stplan_measure(runtime, &ours);
  add_all(s.allocation, ours.all.blocks);
  add_all(s.active, ours.all.blocks);
  add_all(s.allocated_bytes, ours.all.bytes);
  add_all(s.active_bytes, ours.all.bytes);
  add_all(s.requested_bytes, ours.all.requested);
  add_all(s.reserved_bytes, ours.reserved);
  add_all(s.segment, ours.extents);
  stplan_counters counters;
  stplan_read(runtime, &counters);
  s.num_device_alloc += static_cast<int64_t>(counters.growths);
  s.num_ooms += d.out_of_memory.load();
  s.num_alloc_retries += d.retries.load();
  return s;
}

uint64_t Allocator::native_reserved(int device) {
  const Stat reserved = native_->getDeviceStats(static_cast<DeviceIndex>(device)).reserved_bytes[kAll];
  return static_cast<uint64_t>(std::max<int64_t>(reserved.current, 0));
}

bool Allocator::read(int device, stplan_counters* counters) {
  if (device < 0 || device >= count_.load(std::memory_order_acquire))
    return false;
  stplan_device* runtime = devices_[device]->runtime.load(std::memory_order_acquire);
  if (runtime != nullptr)
    stplan_read(runtime, counters);
  return runtime != nullptr;
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
  Device& d = at(device);
  native_->resetAccumulatedStats(device);
  d.out_of_memory.store(0);
  d.retries.store(0);
  if (stplan_device* runtime = d.runtime.load())
    stplan_reset_sums(runtime);
}

void Allocator::resetPeakStats(DeviceIndex device) {
  Device& d = at(device);
  native_->resetPeakStats(device);
  if (stplan_device* runtime = d.runtime.load()) {
    note_native(d);
    stplan_reset_peaks(runtime);
  }
}

} // namespace stplan
