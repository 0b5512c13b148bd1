// install.cpp: the functions that Python calls through ctypes.
#include <c10/cuda/CUDAFunctions.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "allocator.h"
#include "complete.h"

namespace stplan {

Allocator* installed = nullptr;

static void in_child() { installed->after_fork(); }

static const char* install(const stplan_settings& settings) {
  static char error[512];
  CUDAAllocator* native = cca::get();
  if (installed != nullptr)
    return "stplan is installed already";
  if (native->name() != "native") {
    std::snprintf(error, sizeof error, "torch uses its allocator \"%s\"; stplan works only with \"native\"",
                  native->name().c_str());
    return error;
  }
  if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr)
    return "PYTORCH_NO_CUDA_MEMORY_CACHING is set, which makes torch take every block from the driver";
  if (stplan_start(&settings, error, sizeof error) != STPLAN_OK)
    return error;
  installed = new Allocator(native, settings.memory == SP_CUDA_PLAIN);
  // CUDA may be initialised already, since torch's C++ does that too, for pinned memory
  // for example. Blocks that the native allocator has given out stay its own.
  if (native->initialized())
    installed->init(c10::cuda::device_count());
  pthread_atfork(nullptr, nullptr, in_child);
  cca::allocator.store(installed);
  c10::SetAllocator(c10::DeviceType::CUDA, installed);
  return nullptr;
}

// guarded returns what `call` does, or STPLAN_FAILED if torch or one of its trackers throws:
// no exception may reach Python's ctypes.
template <typename Call>
static int guarded(Call call) {
  if (installed == nullptr)
    return STPLAN_OK;
  try {
    const stplan_status status = call(*installed);
    Raised::rethrow();
    return status;
  } catch (...) {
    return STPLAN_FAILED;
  }
}

} // namespace stplan

extern "C" {

// stplan_shim_unanswered returns the name of the first function of this torch's allocator
// interface that the shim does not override, or NULL if it overrides all. Only then may
// the shim be installed.
const char* stplan_shim_unanswered(void) {
  static const std::string name = [] {
    const stplan::Allocator object(stplan::cca::get(), false);
    return stplan::unanswered<stplan::CUDAAllocator>(&object);
  }();
  return name.empty() ? nullptr : name.c_str();
}

// stplan_shim_install makes torch allocate from the runtime. The arguments are those of
// stplan_settings. It returns NULL, or an error message.
const char* stplan_shim_install(const char* plan, const char* counters, int memory, int still, stplan_ranks* ranks, uint64_t proven) {
  try {
    return stplan::install({plan, counters, static_cast<sp_cuda_memory>(memory), still, ranks, proven});
  } catch (const std::exception& problem) {
    static char error[512];
    std::snprintf(error, sizeof error, "%s", problem.what());
    return error;
  }
}

// stplan_shim_read copies a device's counters. It returns 0 if the runtime does not serve
// the device yet.
int stplan_shim_read(int device, stplan_counters* counters) {
  return stplan::installed != nullptr && stplan::installed->read(device, counters);
}

// stplan_shim_exchange_begins says that an exchange with another process is about to be
// enqueued, and returns its number, or 0; stplan_shim_exchange_enqueued, that the call which
// was to do that has returned or failed; stplan_shim_exchange_awaited, that a stream has been
// made to wait for it.
uint64_t stplan_shim_exchange_begins(int device) {
  return stplan::installed == nullptr ? 0 : stplan::installed->exchange_begins(static_cast<c10::DeviceIndex>(device));
}
void stplan_shim_exchange_enqueued(int device, uint64_t exchange) {
  if (stplan::installed != nullptr)
    stplan::installed->exchange_enqueued(static_cast<c10::DeviceIndex>(device), exchange);
}
void stplan_shim_exchange_awaited(int device, uint64_t exchange, uint64_t stream) {
  if (stplan::installed != nullptr)
    stplan::installed->exchange_awaited(static_cast<c10::DeviceIndex>(device), exchange, stream);
}

// stplan_shim_pin pins memory of a live block, or unpins it. It returns 0 if the runtime has
// no such block, or no such pin.
int stplan_shim_pin(uint64_t address, uint64_t size, int pinned) {
  return stplan::installed != nullptr && stplan::installed->pin(address, size, pinned != 0);
}

// stplan_shim_pause gives the idle memory of a device back, or of all if it is negative, and
// stplan_shim_resume takes it back. They return an stplan_status.
int stplan_shim_pause(int device, uint64_t* given) {
  return stplan::guarded([&](stplan::Allocator& a) { return a.pause(device, given); });
}
int stplan_shim_resume(int device, uint64_t most, uint64_t* taken) {
  return stplan::guarded([&](stplan::Allocator& a) { return a.resume(device, most, taken); });
}

// stplan_shim_survey says where a device's memory is. Nothing is written if the runtime does
// not serve the device yet.
void stplan_shim_survey(int device, stplan_memory* memory, uint64_t* native) {
  if (stplan::installed != nullptr)
    stplan::installed->survey(device, memory, native);
}

// These pass on what process.h has under the same names without "shim".
void stplan_shim_keep_history(uint64_t bytes) { stplan_keep_history(bytes); }
void stplan_shim_step(unsigned optimizer) { stplan_step(optimizer); }
int stplan_shim_learns(unsigned first, int ending) { return stplan_learns(first, ending); }
int stplan_shim_save_history(const char* path, int rank) { return stplan_save_history(path, rank); }
int stplan_shim_install_plan(const char* path, char* error, size_t size) {
  return stplan_install_plan(path, error, size);
}

// stplan_shim_mark says that a step of the program begins.
void stplan_shim_mark(void) {
  if (stplan::installed != nullptr)
    stplan::installed->mark();
}
}
