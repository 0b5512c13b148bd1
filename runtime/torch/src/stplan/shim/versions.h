// versions.h: differences between releases of torch. Names and types here are
// those of the newest release; delegating.h does the same for functions.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>
#include <torch/version.h>

#include <memory>
#include <string>
#include <utility>

// STPLAN_TORCH(minor): this torch is 2.minor or newer.
#define STPLAN_TORCH(minor) (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

namespace stplan {

namespace cca = c10::cuda::CUDACachingAllocator;

#if STPLAN_TORCH(9)
using c10::MempoolId_t;
#else
using c10::cuda::MempoolId_t;
#endif

#if STPLAN_TORCH(11)
namespace records = c10::CachingDeviceAllocator;
#else
namespace records = c10::cuda::CUDACachingAllocator;
#endif
using records::AllocatorTraceTracker;
using records::BlockInfo;
using records::CreateContextFn;
using records::RecordContext;
using records::SegmentInfo;
using records::TraceEntry;

#if STPLAN_TORCH(8)
using c10::CachingAllocator::format_size;
#else
using c10::CachingDeviceAllocator::format_size;
#endif
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::Stat;
using c10::CachingDeviceAllocator::StatArray;

#if STPLAN_TORCH(11)
using StreamPointer = void*;
#else
using StreamPointer = cudaStream_t;
#endif

// recorded makes one entry of a device's history.
inline TraceEntry recorded(TraceEntry::Action action, c10::DeviceIndex device, size_t address, size_t size, void* stream,
                           std::shared_ptr<c10::GatheredContext> context, [[maybe_unused]] std::string region,
                           [[maybe_unused]] std::string metadata) {
  return {action,
          device,
          address,
          size,
          static_cast<StreamPointer>(stream),
#if STPLAN_TORCH(8)
          MempoolId_t{0, 0},
#endif
          c10::getApproximateTime(),
          std::move(context),
#if STPLAN_TORCH(8)
          std::move(region),
#endif
#if STPLAN_TORCH(10)
          std::move(metadata),
#endif
  };
}

// action_of returns the action with this name, one of the names for skip_actions of
// torch.cuda.memory._record_memory_history, which torch 2.11 introduced.
inline TraceEntry::Action action_of([[maybe_unused]] const std::string& name) {
#if STPLAN_TORCH(11)
  return records::parseTraceEntryAction(name);
#else
  TORCH_CHECK(false, "this torch records every action: ", name);
#endif
}

} // namespace stplan
