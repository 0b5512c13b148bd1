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
  current_of(native.small_reserved, s.reserved_bytes[kSmall]);
  current_of(native.small_extents, s.segment[kSmall]);
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

// add_blocks does so for blocks: those in memory for small blocks are of torch's small pool, as a
// snapshot says of the segments that they lie in. Programs compare the two.
static void add_blocks(StatArray& into, const stplan_stat& all, const stplan_stat& small, const stplan_stat& large) {
  add(into[kAll], all);
  add(into[kSmall], small);
  add(into[kLarge], large);
}

// add_memory does so for memory. Large is what is not small; its peak is that of the sum, less what is
// small now.
static void add_memory(StatArray& into, const stplan_stat& all, const stplan_stat& small) {
  const auto rest = [](uint64_t of, uint64_t less) { return of - std::min(of, less); };
  const auto native_small = static_cast<uint64_t>(std::max<int64_t>(into[kSmall].current, 0));
  const stplan_stat large = {rest(all.current, small.current), rest(all.peak, native_small + small.current),
                             rest(all.added, small.added), rest(all.removed, small.removed)};
  add_blocks(into, all, small, large);
}

DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  Device& d = at(device);
  DeviceStats s = native_->getDeviceStats(device);
  stplan_device* runtime = d.runtime.load();
  if (runtime == nullptr)
    return s;
  stplan_statistics ours;
  stplan_measure(runtime, &ours);
  const stplan_usage &all = ours.all, &small = ours.small, &large = ours.large;
  add_blocks(s.allocation, all.blocks, small.blocks, large.blocks);
  add_blocks(s.active, all.blocks, small.blocks, large.blocks);
  add_blocks(s.allocated_bytes, all.bytes, small.bytes, large.bytes);
  add_blocks(s.active_bytes, all.bytes, small.bytes, large.bytes);
  add_blocks(s.requested_bytes, all.requested, small.requested, large.requested);
  add_memory(s.reserved_bytes, ours.reserved, ours.small_reserved);
  add_memory(s.segment, ours.extents, ours.small_extents);
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
