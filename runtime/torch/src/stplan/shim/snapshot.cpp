// snapshot.cpp: snapshots and recorded history of both allocators.
#include <algorithm>
#include <iterator>

#include "allocator.h"

namespace stplan {

// action_for is the action of an event. Memory that moves is recorded as torch records
// expandable segments. Other memory comes and goes in whole segments: torch registers those
// with NCCL, and understands no others.
static TraceEntry::Action action_for(stplan_event event) {
  switch (event) {
  case STPLAN_MAPPED: return TraceEntry::SEGMENT_MAP;
  case STPLAN_UNMAPPED: return TraceEntry::SEGMENT_UNMAP;
  case STPLAN_PIECE_TAKEN: return TraceEntry::SEGMENT_ALLOC;
  default: return TraceEntry::SEGMENT_FREE;
  }
}

// saw is called by C code that holds a lock, so nothing may be thrown through it.
void Allocator::saw(Device& device, stplan_event event, uint64_t address, uint64_t size) noexcept {
  if ((unusual_.load(std::memory_order_relaxed) & kWatched) == 0)
    return;
  try {
    device.history.add(action_for(event), device.index, address, size, nullptr, Calling::now());
  } catch (...) {
    Raised::keep();
  }
}

// ranges_of lists a device's memory.
static std::vector<stplan_range> ranges_of(stplan_device* runtime) {
  std::vector<stplan_range> ranges;
  for (size_t count = stplan_ranges(runtime, nullptr, 0); count > ranges.size();) {
    ranges.resize(count + count / 8); // room for ranges that other threads add meanwhile
    count = stplan_ranges(runtime, ranges.data(), ranges.size());
    if (count <= ranges.size())
      ranges.resize(count);
  }
  return ranges;
}

// add_segments adds the runtime's extents as segments. An extent with a gap in its
// addresses gives several segments.
void Allocator::add_segments(Device& device, std::vector<SegmentInfo>& segments) {
  const bool expandable = stplan_moves(device.runtime.load()) != 0;
  for (const stplan_range& r : ranges_of(device.runtime.load())) {
    if (r.first) {
      segments.emplace_back();
      SegmentInfo& s = segments.back();
      s.device = device.index;
      s.address = r.address;
      s.is_large = r.small == 0;
      s.is_expandable = expandable;
    }
    SegmentInfo& s = segments.back();
    s.blocks.emplace_back();
    BlockInfo& block = s.blocks.back();
    block.size = r.size;
    s.total_size += r.size;
    if (!r.live)
      continue;
    block.requested_size = r.requested;
    block.allocated = block.active = true;
    block.context_when_allocated = device.history.context_of(r.address);
    s.requested_size += r.requested;
    s.allocated_size += rounded(r.requested);
    s.active_size += rounded(r.requested);
  }
}

// merge merges both lists by time, keeping the order within each, and keeps the latest
// `most` entries.
static std::vector<TraceEntry> merge(std::vector<TraceEntry> a, std::vector<TraceEntry> b, size_t most) {
  std::vector<TraceEntry> both;
  both.reserve(a.size() + b.size());
  std::merge(std::make_move_iterator(a.begin()), std::make_move_iterator(a.end()), std::make_move_iterator(b.begin()),
             std::make_move_iterator(b.end()), std::back_inserter(both),
             [](const TraceEntry& x, const TraceEntry& y) { return x.time_.t_ < y.time_.t_; });
  if (both.size() > most)
    both.erase(both.begin(), both.end() - static_cast<std::ptrdiff_t>(most));
  return both;
}

cca::SnapshotInfo Allocator::snapshot(MempoolId_t pool, bool include_traces) {
  cca::SnapshotInfo info = Delegating::snapshot(pool, include_traces);
  if (pool != MempoolId_t{0, 0})
    return info;
  const auto nanoseconds = clock_.makeConverter();
  each([&](Device& d, stplan_device*) {
    add_segments(d, info.segments);
    const auto i = static_cast<size_t>(d.index);
    if (include_traces && i < info.device_traces.size())
      info.device_traces[i] = merge(std::move(info.device_traces[i]), d.history.entries(nanoseconds), d.history.most());
  });
  std::stable_sort(info.segments.begin(), info.segments.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
    return a.device != b.device ? a.device < b.device : a.address < b.address;
  });
  return info;
}

void Allocator::recordHistory(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear,
                              const std::vector<std::string>& skip) {
  Delegating::recordHistory(enabled, context, most, when, clear, skip);
  every([&](Device& d) { d.history.record(enabled, context, most, when, clear, skip); });
  recording_ = enabled;
  set_unusual(kWatched, recording_ || tracked_);
}

// Who follows segments is a library that registers them (ProcessGroupNCCL, torchcomms). The
// segments that it finds in a snapshot are those that it is told of from now on.
void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  stplan_still("a library follows the allocator's segments, as those do that register memory");
  native_->attachAllocatorTraceTracker(tracker);
  every([&](Device& d) { d.history.track(tracker); });
  tracked_ = true;
  set_unusual(kWatched, true);
}

void Allocator::pushCompileContext(std::string& text) {
  Delegating::pushCompileContext(text);
  compile_regions().push_back(text);
}

void Allocator::popCompileContext() {
  Delegating::popCompileContext();
  if (!compile_regions().empty())
    compile_regions().pop_back();
}

#if STPLAN_TORCH(12)
Context Allocator::getContextForPointer(const void* pointer) {
  if (Device* d = owner(pointer); d != nullptr)
    return d->history.context_of(reinterpret_cast<uintptr_t>(pointer));
  return Delegating::getContextForPointer(pointer);
}
#endif

#if STPLAN_TORCH(14)
void Allocator::annotateMemory(const void* pointer, const std::string& metadata) {
  Device* d = owner(pointer);
  if (d == nullptr)
    return native_->annotateMemory(pointer, metadata);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  stplan_range block;
  if (stplan_find(d->runtime.load(), address, &block) == STPLAN_OK)
    d->history.annotate(d->index, address, block.requested, reinterpret_cast<void*>(block.stream), metadata);
  Raised::rethrow();
}
#endif

} // namespace stplan
