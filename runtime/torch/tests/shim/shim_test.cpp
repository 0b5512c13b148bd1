// shim_test.cpp: tests the shim over the host primitives, with torch's native allocator
// over fake_cuda.cpp, without a device. Exits with 1 at the first condition that does not
// hold.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "all.cpp"
#include "fake_cuda.h"
extern "C" {
#include "device_hold.h"
#include "prim_host.h"
}

#define DEMAND(what)                                                     \
  do {                                                                   \
    if (!(what)) {                                                       \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)

// Exported by torch, but declared in none of its headers. It sets the function that says
// whether a device is in use; the CUDA part of torch, which is not loaded here, calls it.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

using namespace stplan;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kCapacity = 256 * kMiB;

static CUDAAllocator* native;

static std::atomic<int> exports{0}, refused{0}; // files that were opened for other processes; give_backs to refuse

// The host's memory has no files. Those of this device are of /dev/null.
static int granule_at(void*, uint64_t address, uint64_t* base, uint64_t* size) {
  *size = 2 * kMiB;
  *base = address / *size * *size;
  return 0;
}

static int export_granule(void*, uint64_t, int* file) {
  exports++;
  return (*file = open("/dev/null", O_RDONLY)) < 0;
}

static sp_prim host; // that the device is on
static int (*host_give_back)(void*, uint64_t, uint64_t);

static int give_back(void* self, uint64_t address, uint64_t size) {
  if (refused > 0 && refused-- == 1)
    return 1;
  return host_give_back(self, address, size);
}

static int open_host(int, sp_cuda_memory, sp_prim* prim, char*, size_t) {
  const sp_host_options options = {uint64_t(1) << 40, kCapacity, 2 * kMiB, 1, 0};
  if (!sp_host_open(&options, prim))
    return 0;
  host = *prim;
  host_give_back = prim->give_back;
  prim->give_back = give_back;
  prim->granule_at = granule_at;
  prim->export_granule = export_granule;
  return 1;
}

static bool is_native(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) >> 40 != 1; }

static int64_t current(StatArray& stat, int kind = 0) { return stat[kind].current; }

// in_pool makes a request that goes to the native allocator, as those of a capture do.
static DataPtr in_pool(size_t size) {
#if STPLAN_TORCH(8)
  installed->createOrIncrefPool(0, {0, 7}, nullptr);
#else
  installed->ensureExistsAndIncrefPool(0, {0, 7});
#endif
  installed->beginAllocateToPool(0, {0, 7}, [](cudaStream_t) { return true; });
  DataPtr data = installed->allocate(size);
  installed->endAllocateToPool(0, {0, 7});
  return data;
}

static void drop_pool() {
  installed->releasePool(0, {0, 7});
  installed->emptyCache({0, 0});
}

static void blocks_are_counted() {
  DataPtr small = installed->allocate(513), large = installed->allocate(3 * kMiB + 1);
  DEMAND(!is_native(small.get()) && !is_native(large.get()) && small.get() != large.get());
  DEMAND(small.get_context() == small.get() && small.get_deleter() == installed->raw_deleter());
  DeviceStats s = installed->getDeviceStats(0);
  DEMAND(current(s.allocated_bytes) == 1024 + 3 * int64_t(kMiB) + 512 && current(s.requested_bytes) == 514 + 3 * int64_t(kMiB));
  // Each pool has what a snapshot's segments of it have.
  DEMAND(current(s.allocated_bytes, kSmall) == 1024 && current(s.allocation, kLarge) == 1 && current(s.active) == 2);
  DEMAND(current(s.requested_bytes, kSmall) + current(s.requested_bytes, kLarge) == current(s.requested_bytes));
  DEMAND(current(s.reserved_bytes, kSmall) > 0 && current(s.reserved_bytes, kSmall) + current(s.reserved_bytes, kLarge) == current(s.reserved_bytes));
  for (bool large_ones : {false, true}) {
    int64_t reserved = 0, allocated = 0, segments = 0;
    for (const SegmentInfo& segment : installed->snapshot({0, 0}, true).segments)
      if (segment.is_large == large_ones) {
        reserved += static_cast<int64_t>(segment.total_size);
        allocated += static_cast<int64_t>(segment.allocated_size);
        segments++;
      }
    DEMAND(reserved == current(s.reserved_bytes, large_ones ? kLarge : kSmall) && segments > 0);
    DEMAND(allocated == current(s.allocated_bytes, large_ones ? kLarge : kSmall));
  }
  DEMAND(current(s.reserved_bytes) >= current(s.allocated_bytes) && current(s.segment) >= 1);
  large.clear();
  small.clear();
  s = installed->getDeviceStats(0);
  DEMAND(current(s.allocated_bytes) == 0 && s.allocated_bytes[0].peak == 1024 + 3 * int64_t(kMiB) + 512);
  DEMAND(s.allocated_bytes[kLarge].peak == 3 * int64_t(kMiB) + 512 && s.allocated_bytes[kSmall].peak == 1024);
  DEMAND(s.allocation[0].allocated == 2 && s.allocation[0].freed == 2);
  DataPtr nothing = installed->allocate(0);
  DEMAND(nothing.get() == nullptr && installed->raw_alloc(0) == nullptr);
  installed->resetAccumulatedStats(0);
  installed->resetPeakStats(0);
  s = installed->getDeviceStats(0);
  DEMAND(s.allocated_bytes[0].peak == 0 && s.allocation[0].allocated == 0 && s.allocation[0].freed == 0);
}

static void the_native_allocator_serves_pools() {
  DataPtr ours = installed->allocate(2 * kMiB), theirs = in_pool(4 * kMiB);
  DEMAND(!is_native(ours.get()) && is_native(theirs.get()));
  DEMAND(theirs.get_deleter() == installed->raw_deleter());
  DeviceStats s = installed->getDeviceStats(0);
  DEMAND(current(s.allocated_bytes) == 6 * int64_t(kMiB) && s.allocated_bytes[0].peak == 6 * int64_t(kMiB));
  DEMAND(static_cast<size_t>(current(s.reserved_bytes)) >= fake_cuda_used() + 2 * kMiB);
  installed->recordStream(theirs, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0x98), 0));
  const int waits = fake_cuda_waits();
  theirs.clear();
  DEMAND(fake_cuda_waits() > waits); // the native allocator knows of the stream
  ours.clear();
  drop_pool();
  s = installed->getDeviceStats(0);
  DEMAND(current(s.allocated_bytes) == 0 && s.allocated_bytes[0].peak == 6 * int64_t(kMiB));
}

static void unknown_pointers_are_refused() {
  int refused = 0;
  try {
    installed->raw_delete(reinterpret_cast<void*>(0x1234));
  } catch (const c10::Error&) {
    refused++;
  }
  void* pointer = installed->raw_alloc(100);
  installed->raw_delete(pointer);
  try {
    installed->raw_delete(pointer);
  } catch (const c10::Error&) {
    refused++;
  }
  DEMAND(refused == 2);
}

static void running_out_of_memory_raises_torchs_exception() {
  int observed = 0;
  installed->attachOutOfMemoryObserver([&](int64_t, size_t size, size_t, size_t) { observed += size == kCapacity + 1; });
  DataPtr kept = installed->allocate(kMiB);
  for (int i = 0; i < 2; i++) {
    std::string said;
    try {
      installed->allocate(kCapacity + 1);
    } catch (const c10::OutOfMemoryError& error) {
      said = error.what_without_backtrace();
    }
    DEMAND(said.rfind("CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 512.00 MiB", 0) == 0);
  }
  const DeviceStats s = installed->getDeviceStats(0);
  DEMAND(observed == 2 && s.num_ooms == 2 && s.num_alloc_retries == 2);
  DEMAND(installed->allocate(kMiB).get() != nullptr);
}

static void the_memory_fraction_limits_both_allocators() {
  DataPtr theirs = in_pool(20 * kMiB);
  installed->emptyCache({0, 0});
  installed->setMemoryFraction(0.25, 0); // 128 MiB
  DEMAND(installed->getMemoryFraction(0) == 0.25);
  DEMAND(installed->allocate(100 * kMiB).get() != nullptr);
  bool refused = false;
  try {
    installed->allocate(110 * kMiB);
  } catch (const c10::OutOfMemoryError& error) {
    refused = std::string(error.what_without_backtrace()).find("128.00 MiB allowed") != std::string::npos;
  }
  DEMAND(refused);
  installed->setMemoryFraction(1.0, 0);
  DEMAND(installed->allocate(120 * kMiB).get() != nullptr);
  theirs.clear();
  drop_pool();
}

struct Reporter : c10::MemoryReportingInfoBase {
  int64_t sum = 0;
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override { sum += bytes; }
  bool memoryProfilingEnabled() const override { return true; }
};

// A block that leaves room for two halves counts as what was asked for, wherever it is counted.
static void room_for_halves_is_not_counted() {
  constexpr size_t half = kMiB + 256;
  const auto reporter = std::make_shared<Reporter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reporter);
  DataPtr part = installed->allocate(half), whole = installed->allocate(2 * half);
  DEMAND(reporter->sum == 3 * kMiB + 1024);
  size_t largest = 0, allocated = 0;
  for (const auto& segment : installed->snapshot({0, 0}, true).segments) {
    allocated += segment.allocated_size;
    for (const auto& block : segment.blocks)
      if (block.allocated && block.requested_size == 2 * half)
        largest = std::max<size_t>(largest, block.size);
  }
  DEMAND(largest == 2 * (kMiB + 512));
  DeviceStats stats = installed->getDeviceStats(0);
  DEMAND(allocated == static_cast<size_t>(current(stats.allocated_bytes)));
  part.clear();
  whole.clear();
  DEMAND(reporter->sum == 0);
}

struct Named : c10::GatheredContext {};
static std::shared_ptr<c10::GatheredContext> named() { return std::make_shared<Named>(); }

static void history_is_recorded_in_order() {
  installed->emptyCache({0, 0});
  installed->recordHistory(true, named, 8, RecordContext::ALL, false, {});
  DEMAND(installed->isHistoryEnabled());
  std::string region = "region";
  installed->pushCompileContext(region);
  DataPtr first = installed->allocate(30 * kMiB);
  installed->popCompileContext();
  const auto address = reinterpret_cast<uintptr_t>(first.get());
  first.clear();
  DataPtr second = installed->allocate(10 * kMiB), theirs = in_pool(kMiB);
  cca::SnapshotInfo info = installed->snapshot({0, 0}, true);
  std::vector<TraceEntry> ours;
  for (const auto& entry : info.device_traces.at(0))
    if (entry.addr_ >> 40 == 1)
      ours.push_back(entry);
  const TraceEntry::Action expected[] = {TraceEntry::SEGMENT_MAP, TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED,
                                         TraceEntry::FREE_COMPLETED, TraceEntry::ALLOC};
  DEMAND(ours.size() == 5);
  for (size_t i = 0; i < ours.size(); i++)
    DEMAND(ours[i].action_ == expected[i] && ours[i].context_ != nullptr && ours[i].time_.t_ > 1600000000000000);
  DEMAND(ours[1].addr_ == address && ours[1].size_ == 30 * kMiB);
#if STPLAN_TORCH(8)
  DEMAND(ours[1].compile_context_ == "region" && ours[4].compile_context_ == "N/A");
#endif
  for (size_t i = 1; i < info.device_traces[0].size(); i++)
    DEMAND(info.device_traces[0][i - 1].time_.t_ <= info.device_traces[0][i].time_.t_);
  size_t reserved = 0, allocated = 0, with_context = 0;
  for (const auto& segment : info.segments) {
    size_t size = 0;
    for (const auto& block : segment.blocks) {
      size += block.size;
      with_context += block.allocated && block.context_when_allocated != nullptr;
    }
    DEMAND(size == segment.total_size);
    reserved += segment.total_size;
    allocated += segment.allocated_size;
  }
  DeviceStats s = installed->getDeviceStats(0);
  DEMAND(reserved == static_cast<size_t>(current(s.reserved_bytes)));
  DEMAND(allocated == static_cast<size_t>(current(s.allocated_bytes)) && with_context == 2);
#if STPLAN_TORCH(12)
  for (const DataPtr* data : {&second, &theirs})
    DEMAND(installed->getContextForPointer(data->get()) != nullptr);
#endif
#if STPLAN_TORCH(14)
  for (const DataPtr* data : {&second, &theirs})
    installed->annotateMemory(data->get(), "words");
  info = installed->snapshot({0, 0}, true);
  size_t annotated = 0;
  for (const auto& entry : info.device_traces.at(0))
    annotated += entry.action_ == TraceEntry::ANNOTATE && entry.user_metadata_ == "words" && entry.size_ >= kMiB;
  DEMAND(annotated == 2);
#endif
  for (int i = 0; i < 20; i++)
    installed->allocate(512);
  info = installed->snapshot({0, 0}, true);
  DEMAND(info.device_traces.at(0).size() == 8); // the latest
  installed->recordHistory(false, nullptr, 1, RecordContext::NEVER, false, {});
  DEMAND(installed->snapshot({0, 0}, true).device_traces.at(0).empty());
  second.clear();
  theirs.clear();
  drop_pool();
}

// Who emptied the cache is recorded only with the contexts of everything.
static void who_gives_memory_back_is_recorded() {
  for (RecordContext when : {RecordContext::STATE, RecordContext::ALLOC, RecordContext::ALL}) {
    installed->emptyCache({0, 0});
    installed->recordHistory(true, named, 100, when, true, {});
    installed->allocate(30 * kMiB);
    installed->emptyCache({0, 0});
    const cca::SnapshotInfo info = installed->snapshot({0, 0}, true);
    size_t given_back = 0;
    for (const auto& entry : info.device_traces.at(0)) {
      if (entry.addr_ >> 40 != 1 || entry.action_ != TraceEntry::SEGMENT_UNMAP)
        continue;
      given_back += entry.size_;
      DEMAND((entry.context_ != nullptr) == (when == RecordContext::ALL));
    }
    DEMAND(given_back >= 30 * kMiB);
    installed->recordHistory(false, nullptr, 1, RecordContext::NEVER, false, {});
  }
}

static void many_streams_are_served() {
  std::vector<DataPtr> blocks;
  for (uintptr_t i = 0; i < 80; i++)
    blocks.emplace_back(nullptr, installed->raw_alloc_with_stream(kMiB, reinterpret_cast<cudaStream_t>(0x1000 + i)),
                        installed->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  size_t delegated = 0;
  for (auto& block : blocks)
    delegated += is_native(block.get_context());
  DEMAND(delegated >= 80 - 64 && delegated < 80);
  blocks.clear();
  DataPtr shared = installed->allocate(kMiB);
  DEMAND(!is_native(shared.get()));
  installed->recordStream(shared, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0x5000), 0));
  const int waits = fake_cuda_waits();
  shared.clear();
  DEMAND(fake_cuda_waits() == waits + 1); // the runtime could not track the stream, so the free waited
}

static void every_function_is_overridden() {
  DEMAND(unanswered<CUDAAllocator>(installed).empty());
}

static void memory_is_shared() {
  DataPtr data = installed->allocate(kMiB);
  size_t size = 0;
  void* base = installed->getBaseAllocation(data.get(), &size);
  DEMAND(base <= data.get() && size >= kMiB);
  size_t largest = 1;
  installed->cacheInfo(0, &largest);
  DEMAND(largest > 1);
}

static int open_files() {
  int count = 0;
  for (int file = 3; file < 512; file++)
    count += fcntl(file, F_GETFD) >= 0;
  return count;
}

// The files of a shared block are the same each time, and closed with the last block that
// has bytes in their granules.
static void shared_files_end_with_their_blocks() {
  installed->emptyCache({0, 0});
  const int before = open_files();
  exports = 0;
  DataPtr first = installed->allocate(5 * kMiB), second = installed->allocate(2 * kMiB);
  const auto share = [](const DataPtr& data) { return installed->shareIpcHandle(data.get()).handle; };
  const std::string handle = share(first);
  DEMAND(exports == 3 && open_files() == before + 3 && share(first) == handle && exports == 3);
  const std::string other = share(second); // its first granule is the last of the other
  DEMAND(exports == 4 && std::memcmp(&other[other.size() - 8], &handle[handle.size() - 4], 4) == 0);
  first.clear();
  DEMAND(open_files() == before + 2);
  second.clear();
  DEMAND(open_files() == before);
  DataPtr again = installed->allocate(5 * kMiB);
  share(again);
  DEMAND(exports == 7);
  again.clear();
  DEMAND(open_files() == before);
}

// What the device does not take back is not recorded as unmapped.
static void a_failed_give_back_is_not_told() {
  installed->emptyCache({0, 0});
  installed->recordHistory(true, named, 100, RecordContext::ALL, false, {});
  installed->allocate(30 * kMiB);
  refused = 4;
  installed->emptyCache({0, 0});
  refused = 0;
  size_t mapped = 0;
  const cca::SnapshotInfo info = installed->snapshot({0, 0}, true);
  for (const auto& entry : info.device_traces.at(0)) {
    if (entry.addr_ >> 40 != 1)
      continue;
    mapped += entry.action_ == TraceEntry::SEGMENT_MAP ? entry.size_ : 0;
    mapped -= entry.action_ == TraceEntry::SEGMENT_UNMAP ? entry.size_ : 0;
  }
  stplan_counters now;
  DEMAND(installed->read(0, &now) && mapped == 24 * kMiB && mapped <= now.reserved_bytes);
  installed->recordHistory(false, nullptr, 1, RecordContext::NEVER, false, {});
  installed->emptyCache({0, 0});
}

// A capture on one device holds memory of all.
static void captures_hold_the_process() {
  const auto held = [] { return sp_hold_enter() ? (sp_hold_leave(), false) : true; };
  DEMAND(!held());
  installed->beginAllocateToPool(0, {0, 9}, [](cudaStream_t) { return false; });
  DEMAND(held());
  DataPtr data = installed->allocate(40 * kMiB);
  data.clear();
  stplan_counters before, after;
  installed->read(0, &before);
  installed->emptyCache({0, 0});
  installed->read(0, &after);
  DEMAND(before.reserved_bytes == after.reserved_bytes);
  installed->endAllocateToPool(0, {0, 9});
  DEMAND(!held());
}

// While an exchange is under way, from its announcement on, only a stream that the program has
// made wait for it may be made to wait for what comes behind. Nothing is done on the device here.
static void exchanges_are_followed() {
  const auto first = reinterpret_cast<cudaStream_t>(71), second = reinterpret_cast<cudaStream_t>(72);
  const auto waits = [] {
    stplan_counters counters;
    DEMAND(installed->read(0, &counters));
    return counters.waits;
  };
  installed->emptyCache({0, 0});
  void* block = installed->raw_alloc_with_stream(4 * kMiB, first);
  installed->raw_delete(installed->raw_alloc_with_stream(512, second));
  const uint64_t before = waits(), receive = stplan_shim_exchange_begins(0);
  DEMAND(receive != 0 && stplan_shim_exchange_begins(-1) == 0);
  sp_host_lag(&host, SP_HOST_STALLED);
  installed->raw_delete(block);
  void* other = installed->raw_alloc_with_stream(4 * kMiB, second);
  stplan_shim_exchange_awaited(0, receive, 72);
  void* another = installed->raw_alloc_with_stream(4 * kMiB, second);
  DEMAND(other != block && another != block && waits() == before);
  stplan_shim_exchange_enqueued(0, receive);
  stplan_shim_exchange_awaited(0, receive, 72);
  void* again = installed->raw_alloc_with_stream(4 * kMiB, second);
  DEMAND(again == block && waits() == before + 1);
  for (void* held : {other, another, again})
    installed->raw_delete(held);
  sp_host_lag(&host, 0);
}

// The hook of ProcessGroupNCCL.cpp: it registers segments by SEGMENT_ALLOC, and ends that by
// SEGMENT_FREE, for which it has to know the segment.
struct Registrar {
  std::map<size_t, size_t> segments;
  bool throws = false;
  int thrown = 0;

  void see(const TraceEntry& entry) {
    if (entry.addr_ >> 40 != 1)
      return;
    if (throws && (entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_FREE)) {
      thrown++;
      TORCH_CHECK(false, "the hook fails");
    }
    DEMAND(entry.action_ != TraceEntry::SEGMENT_MAP && entry.action_ != TraceEntry::SEGMENT_UNMAP);
    if (entry.action_ == TraceEntry::SEGMENT_ALLOC)
      DEMAND(segments.emplace(entry.addr_, entry.size_).second);
    if (entry.action_ == TraceEntry::SEGMENT_FREE)
      DEMAND(segments.count(entry.addr_) && segments.at(entry.addr_) == entry.size_ && segments.erase(entry.addr_));
  }

  // attach registers the segments that there are, and those that come.
  void attach() {
    installed->attachAllocatorTraceTracker([this](const TraceEntry& entry) { see(entry); });
    segments = listed();
  }

  static std::map<size_t, size_t> listed() {
    std::map<size_t, size_t> found;
    for (const auto& segment : installed->snapshot({0, 0}, false).segments)
      if (segment.address >> 40 == 1) {
        DEMAND(!segment.is_expandable);
        found[segment.address] = segment.total_size;
      }
    return found;
  }
};

static Registrar registrar;

// With such a hook memory does not move: all of it is registered at all times, and nothing
// that is not there.
static void registered_memory_stays() {
  std::vector<DataPtr> blocks;
  stplan_counters before, after;
  const auto scatter = [&] {
    for (int i = 0; i < 10; i++)
      blocks.push_back(installed->allocate((6 + i) * kMiB));
    for (size_t i = 0; i < blocks.size(); i += 2)
      blocks[i].clear();
  };
  scatter();
  DEMAND(stplan_moves(stplan_at(0)));
  registrar.attach();
  DEMAND(!stplan_moves(stplan_at(0)) && !registrar.segments.empty());
  installed->read(0, &before);
  scatter();
  blocks.push_back(installed->allocate(40 * kMiB));
  installed->read(0, &after);
  DEMAND(after.moved_bytes == before.moved_bytes && registrar.segments == Registrar::listed());
  blocks.clear();
  installed->emptyCache({0, 0});
  DEMAND(registrar.segments == Registrar::listed());
  stplan_counters now;
  size_t registered = 0;
  for (const auto& segment : registrar.segments)
    registered += segment.second;
  DEMAND(installed->read(0, &now) && registered == now.reserved_bytes);
}

// An exception of the hook reaches the caller, and leaves no lock and no block behind.
static void trackers_may_throw() {
  alarm(60); // a lock that is held for ever must end the test
  installed->emptyCache({0, 0});
  stplan_counters before, after;
  installed->read(0, &before);
  registrar.throws = true;
  int caught = 0;
  try {
    installed->allocate(90 * kMiB);
  } catch (const c10::Error& error) {
    caught += std::string(error.what_without_backtrace()) == "the hook fails";
  }
  installed->read(0, &after);
  DEMAND(caught == 1 && registrar.thrown == 1 && after.allocated_bytes == before.allocated_bytes);
  try {
    installed->emptyCache({0, 0});
  } catch (const c10::Error&) {
    caught++;
  }
  DEMAND(caught == 2 && registrar.thrown == 2);
  registrar.throws = false;
  registrar.segments = Registrar::listed();
  DataPtr data;
  std::thread([&] { data = installed->allocate(100 * kMiB); }).join(); // needs the lock, and new memory
  DEMAND(data.get() != nullptr && !is_native(data.get()) && registrar.segments == Registrar::listed());
  data.clear();
  installed->emptyCache({0, 0});
  alarm(0);
}

static void memory_is_pinned() {
  DataPtr data = installed->allocate(30 * kMiB), theirs = in_pool(kMiB);
  const auto address = reinterpret_cast<uintptr_t>(data.get());
  DEMAND(installed->pin(address, 30 * kMiB, true) && !installed->pin(reinterpret_cast<uintptr_t>(theirs.get()), kMiB, true));
  data.clear();
  installed->emptyCache({0, 0});
  const auto there = [&] {
    bool found = false;
    for (const auto& segment : Registrar::listed())
      found = found || (segment.first <= address && address < segment.first + segment.second);
    return found;
  };
  DEMAND(there());
  DEMAND(installed->pin(address, 30 * kMiB, false) && !installed->pin(address, 30 * kMiB, false));
  installed->emptyCache({0, 0});
  DEMAND(!there());
  theirs.clear();
  drop_pool();
}

static void a_forked_child_frees_nothing() {
  DataPtr data = installed->allocate(kMiB);
  const pid_t child = fork();
  if (child == 0) {
    data.clear();
    _exit(installed->getDeviceStats(0).num_ooms < 0 || stplan_shim_exchange_begins(0) != 0);
  }
  int status = 1;
  DEMAND(waitpid(child, &status, 0) == child && status == 0);
  DEMAND(!is_native(data.get()));
}

// A child whose parent has not used CUDA may use it, and is served.
static void a_child_forked_before_cuda_is_served() {
  const pid_t child = fork();
  if (child == 0) {
    installed->init(1);
    DataPtr data = installed->allocate(1000);
    void* raw = installed->raw_alloc(1000);
    DEMAND(!is_native(data.get()) && !is_native(raw));
    installed->recordStream(data, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0x98), 0));
    data.clear();
    installed->raw_delete(raw);
    stplan_counters now;
    DEMAND(installed->read(0, &now) && now.allocated_bytes == 0 && now.events_recorded == 1);
    _exit(0);
  }
  int status = 1;
  DEMAND(waitpid(child, &status, 0) == child && status == 0);
}

// The same handle may name a stream of another device: the runtime must not take that for
// a stream of its own device.
static void streams_of_other_devices_are_waited_for() {
  DataPtr data = installed->allocate(kMiB);
  installed->recordStream(data, c10::cuda::getStreamFromExternal(nullptr, 1));
  const int waits = fake_cuda_waits();
  data.clear();
  DEMAND(fake_cuda_waits() == waits + 1);
}

// A callback that frees memory. The native allocator calls it while it holds its lock.
static DataPtr to_free;
struct Freeing : c10::FreeMemoryCallback {
  bool Execute() override {
    usleep(10000); // so that another thread waits for that lock
    to_free.clear();
    return false;
  }
};
namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("stplan_test", Freeing)
}

static void the_native_allocator_may_call_back() {
  alarm(60); // a deadlock must end the test
  std::atomic<bool> ends{false};
  std::vector<std::thread> others; // they wait for our lock and for the native allocator's
  for (int i = 0; i < 4; i++)
    others.emplace_back([&] {
      while (!ends)
        installed->resetPeakStats(0);
    });
  std::vector<DataPtr> held; // so that most requests need new memory, and callbacks are called
  int freed = 0;
  for (int i = 0; i < 18; i++) {
    to_free = in_pool(kMiB);
    held.push_back(in_pool(20 * kMiB));
    freed += to_free.get() == nullptr;
  }
  DEMAND(freed > 9);
  ends = true;
  for (auto& other : others)
    other.join();
  alarm(0);
  held.clear();
  drop_pool();
}

static void measure() {
  constexpr int kTimes = 1000000;
  for (CUDAAllocator* allocator : {native, static_cast<CUDAAllocator*>(installed)}) {
    DataPtr kept = allocator->allocate(3000);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; i++)
      allocator->allocate(4096);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %.0f ns for an allocation and its free\n", allocator == native ? "native" : "stplan", took.count() / kTimes);
  }
}

int main() {
  char error[256];
  native = cca::get();
  c10::cuda::_internal::setHasPrimaryContext([](DeviceIndex) { return true; });
  const stplan_settings settings = {nullptr, nullptr, SP_CUDA_AUTO};
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_OK);
  installed = new Allocator(native, false);
  pthread_atfork(nullptr, nullptr, in_child);
  cca::allocator.store(installed);
  DEMAND(!installed->initialized());
  a_child_forked_before_cuda_is_served();
  installed->init(1);
  DEMAND(installed->initialized() && installed->name() == "native");
  every_function_is_overridden();
  blocks_are_counted();
  the_native_allocator_serves_pools();
  unknown_pointers_are_refused();
  running_out_of_memory_raises_torchs_exception();
  the_memory_fraction_limits_both_allocators();
  room_for_halves_is_not_counted();
  history_is_recorded_in_order();
  who_gives_memory_back_is_recorded();
  a_forked_child_frees_nothing();
  memory_is_shared();
  shared_files_end_with_their_blocks();
  a_failed_give_back_is_not_told();
  captures_hold_the_process();
  exchanges_are_followed();
  measure();
  registered_memory_stays(); // from here on memory does not move
  trackers_may_throw();
  memory_is_pinned();
  streams_of_other_devices_are_waited_for();
  the_native_allocator_may_call_back();
  many_streams_are_served(); // last: it leaves no stream unused
  std::printf("passed\n");
  return 0;
}
