#include "history.h"

#include "allocator.h"

namespace stplan {

static thread_local std::exception_ptr raised;

void Raised::keep() noexcept {
  if (raised == nullptr)
    raised = std::current_exception();
}

bool Raised::waits() { return raised != nullptr; }

void Raised::rethrow() {
  if (C10_LIKELY(raised == nullptr))
    return;
  const std::exception_ptr problem = std::move(raised);
  raised = nullptr;
  std::rethrow_exception(problem);
}

static thread_local const Context* calling = nullptr;

Calling::Calling(const Context& context) { calling = &context; }
Calling::~Calling() { calling = nullptr; }
Context Calling::now() { return calling == nullptr ? nullptr : *calling; }

std::vector<std::string>& compile_regions() {
  static thread_local std::vector<std::string> regions;
  return regions;
}

void History::record(bool enabled, CreateContextFn context, size_t most, RecordContext when, bool clear,
                     const std::vector<std::string>& skip) {
  std::lock_guard<std::mutex> lock(lock_);
  enabled_ = enabled;
  context_ = enabled ? context : nullptr;
  when_ = enabled ? when : RecordContext::NEVER;
  most_ = std::max<size_t>(most, 1);
  skipped_ = 0;
  for (const auto& action : skip)
    skipped_ |= 1U << action_of(action);
  if (!enabled)
    contexts_.clear();
  if (!enabled || clear)
    list_.clear();
  while (list_.size() > most_)
    list_.pop_front();
}

void History::track(AllocatorTraceTracker tracker) {
  std::lock_guard<std::mutex> lock(lock_);
  trackers_.push_back(std::move(tracker));
}

Context History::gather(RecordContext level) {
  CreateContextFn context;
  {
    std::lock_guard<std::mutex> lock(lock_);
    context = when_ >= level ? context_ : nullptr;
  }
  return context == nullptr ? nullptr : context();
}

void History::add(Entry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
                  Context context) {
  std::lock_guard<std::mutex> lock(lock_);
  if (action == Entry::ALLOC && context != nullptr) {
    contexts_[address] = context;
  } else if (action == Entry::FREE_REQUESTED || action == Entry::FREE_COMPLETED) {
    auto found = contexts_.find(address);
    if (found != contexts_.end()) {
      if (context == nullptr)
        context = found->second;
      if (action == Entry::FREE_COMPLETED)
        contexts_.erase(found);
    }
  }
  const auto& regions = compile_regions();
  keep(recorded(action, device, address, size, stream, when_ >= RecordContext::ALLOC ? std::move(context) : nullptr,
                regions.empty() ? "N/A" : regions.back(), installed->getUserMetadata()));
}

#if STPLAN_TORCH(14)
void History::annotate(c10::DeviceIndex device, size_t address, size_t size, void* stream, const std::string& metadata) {
  std::lock_guard<std::mutex> lock(lock_);
  const auto& regions = compile_regions();
  keep(recorded(Entry::ANNOTATE, device, address, size, stream, nullptr, regions.empty() ? "N/A" : regions.back(),
                metadata));
}
#endif

void History::keep(Entry entry) {
  for (const auto& tracker : trackers_) {
    try {
      tracker(entry);
    } catch (...) {
      Raised::keep();
    }
  }
  if (!enabled_ || (skipped_ >> entry.action_ & 1) != 0)
    return;
  if (list_.size() == most_)
    list_.pop_front();
  list_.push_back(std::move(entry));
}

std::vector<History::Entry> History::entries(const std::function<c10::time_t(c10::approx_time_t)>& nanoseconds) {
  std::lock_guard<std::mutex> lock(lock_);
  std::vector<Entry> copy(list_.begin(), list_.end());
  for (auto& entry : copy)
    entry.time_.t_ = nanoseconds(entry.time_.approx_t_) / 1000;
  return copy;
}

size_t History::most() {
  std::lock_guard<std::mutex> lock(lock_);
  return most_;
}

Context History::context_of(size_t address) {
  std::lock_guard<std::mutex> lock(lock_);
  auto found = contexts_.find(address);
  return found == contexts_.end() ? nullptr : found->second;
}

} // namespace stplan
