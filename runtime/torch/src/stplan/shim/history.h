// history.h: what a device's runtime did, as torch records it of its own allocator.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "versions.h"

namespace stplan {

using Context = std::shared_ptr<c10::GatheredContext>;

class History {
 public:
  using Entry = TraceEntry;

  // What is recorded from now on; `most` entries are kept, the latest.
  void record(bool enabled, CreateContextFn context, size_t most,
              RecordContext when, bool clear, const std::vector<std::string>& skip);
  void track(AllocatorTraceTracker tracker);

  // gather makes the context of a call where it is wanted at this level. It may
  // take any lock, so it comes before all of ours.
  Context gather(RecordContext level);

  // add records one event. A context stays with an allocated block until it is
  // freed.
  void add(Entry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream, Context context);

#if STPLAN_TORCH(14)
  // annotate records what the program says of a live block.
  void annotate(c10::DeviceIndex device, size_t address, size_t size, void* stream, const std::string& metadata);
#endif

  // entries copies what is kept, oldest first, their times in microseconds; the
  // clock gives nanoseconds.
  std::vector<Entry> entries(const std::function<c10::time_t(c10::approx_time_t)>& nanoseconds);

  // most is how many entries are kept.
  size_t most();

  // context_of is that of the allocation of a live block.
  Context context_of(size_t address);

 private:
  // keep is called with the lock.
  void keep(Entry entry);

  std::mutex lock_;
  bool enabled_ = false;
  CreateContextFn context_ = nullptr;
  size_t most_ = 1;
  RecordContext when_ = RecordContext::NEVER;
  uint32_t skipped_ = 0; // one bit for each action
  std::deque<Entry> list_;
  std::unordered_map<size_t, Context> contexts_;
  std::vector<AllocatorTraceTracker> trackers_;
};

// The names of the torch.compile regions that this thread is in.
std::vector<std::string>& compile_regions();

// Segments that the runtime takes or gives back in a call carry its context.
class Calling {
 public:
  explicit Calling(const Context& context);
  ~Calling();
  static Context now();
};

} // namespace stplan
