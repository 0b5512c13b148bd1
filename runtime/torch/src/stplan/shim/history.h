// history.h: the events of a device's runtime, in the form in which torch records those
// of its own allocator.
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

// Raised keeps the exception of a tracker, which torch allows to throw. Events are told by
// the C runtime while it holds a lock, and in the middle of calls: so the exception waits
// until the call is complete, and is thrown then, on the same thread.
class Raised {
 public:
  // keep keeps the exception that is being handled, unless an earlier one is waiting.
  static void keep() noexcept;
  static bool waits();
  // rethrow throws the exception that is waiting, if there is one.
  static void rethrow();
};

class History {
 public:
  using Entry = TraceEntry;

  // record sets what is recorded from now on; the latest `most` entries are kept.
  void record(bool enabled, CreateContextFn context, size_t most,
              RecordContext when, bool clear, const std::vector<std::string>& skip);
  void track(AllocatorTraceTracker tracker);

  // gather makes the context of a call, or returns nullptr if contexts are not recorded
  // at this level. Making one may take any lock, so no lock of ours may be held.
  Context gather(RecordContext level);

  // add records one event. An exception of a tracker is kept (Raised). The context of an allocation is kept until its block is freed.
  void add(Entry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream, Context context);

#if STPLAN_TORCH(14)
  // annotate records the program's annotation of a live block.
  void annotate(c10::DeviceIndex device, size_t address, size_t size, void* stream, const std::string& metadata);
#endif

  // entries copies the entries, oldest first, with their times in microseconds;
  // `nanoseconds` converts a time to nanoseconds.
  std::vector<Entry> entries(const std::function<c10::time_t(c10::approx_time_t)>& nanoseconds);

  // most is how many entries are kept.
  size_t most();

  // context_of is the context of the allocation of a live block.
  Context context_of(size_t address);

 private:
  // keep is called with lock_ held.
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

// compile_regions are the names of the torch.compile regions that this thread is in.
std::vector<std::string>& compile_regions();

// Calling sets the context for the segments that the runtime takes or gives back during
// one call on this thread.
class Calling {
 public:
  explicit Calling(const Context& context);
  ~Calling();
  static Context now();
};

} // namespace stplan
