// sharing.cpp: memory that other processes or other devices use.
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "allocator.h"

namespace stplan {

// torch's handle by which another process opens a block: one byte with a version, one
// with a kind of memory, and then for plain memory a handle of cudaIpcGetMemHandle,
// and for expandable segments this header and one file descriptor for each granule.
constexpr char kPlain = 'c', kGranules = 'e';
struct Granules {
  pid_t pid;
  size_t size, count;
  // The header of versions before 3 ends here.
  int32_t kind;
};
constexpr char kKindVersion = 3, kGranulesVersions = 3; // first version with a kind; newest known
constexpr int32_t kFiles = 1; // torch's number for file descriptors

void* Allocator::getBaseAllocation(void* pointer, size_t* size) {
  Device* d = owner(pointer);
  if (d == nullptr)
    return native_->getBaseAllocation(pointer, size);
  uint64_t base = 0, bytes = 0;
  const stplan_status status = stplan_extent(d->runtime.load(), reinterpret_cast<uintptr_t>(pointer), &base, &bytes);
  TORCH_CHECK(status == STPLAN_OK, "invalid device pointer: ", pointer);
  if (size != nullptr)
    *size = bytes;
  return reinterpret_cast<void*>(base);
}

// handle_version finds out the version that this torch writes: it asks for the handle of
// a block of the native allocator.
char Allocator::handle_version() {
  void* block = native_->raw_alloc(1);
  const std::string handle = native_->shareIpcHandle(block).handle;
  native_->raw_delete(block);
  TORCH_CHECK(handle.size() > 2 && (handle[1] == kPlain || handle[1] == kGranules),
              "stplan does not know how this torch shares memory between processes");
  return handle[0];
}

// share returns the file descriptors by which other processes map the granules of a block.
// They stay open and the same as long as the block lives: torch recognises memory that it
// has mapped already by these numbers. It keeps a block that it has sent until every receiver
// has unmapped it (CudaIPCSentData), so with the block's free the sharing is over: nothing
// need be pinned, and the numbers may become another granule's.
std::vector<int> Allocator::share(Device& device, uint64_t address, const std::vector<uint64_t>& granules) {
  std::lock_guard<std::mutex> lock(device.sharing);
  std::vector<int> files;
  for (uint64_t granule : granules) {
    SharedFile& shared = device.files[granule];
    if (shared.file < 0 && stplan_export_granule(device.runtime.load(), granule, &shared.file) != STPLAN_OK) {
      shared.file = -1;
      const size_t open = device.files.size() - 1;
      close_unused(device, granules);
      TORCH_CHECK(false, "the driver cannot share this tensor between processes: stplan serves it from virtual memory, and ",
                  open, " file descriptors are open for sharing; run with memory=\"plain\" (stplan run --memory plain)");
    }
    files.push_back(shared.file);
  }
  if (device.shared.emplace(address, granules).second)
    for (uint64_t granule : granules)
      device.files[granule].blocks++;
  device.shared_count.store(device.shared.size(), std::memory_order_relaxed);
  return files;
}

// close_unused closes the files of those granules that no shared block uses. device.sharing
// is held.
void Allocator::close_unused(Device& device, const std::vector<uint64_t>& granules) {
  for (uint64_t granule : granules) {
    const auto found = device.files.find(granule);
    if (found == device.files.end() || found->second.blocks != 0)
      continue;
    if (found->second.file >= 0)
      close(found->second.file);
    device.files.erase(found);
  }
}

// unshare is called before a block is freed, so that the next block at its address is not
// taken for it.
void Allocator::unshare(Device& device, uint64_t address) {
  std::lock_guard<std::mutex> lock(device.sharing);
  const auto found = device.shared.find(address);
  if (found == device.shared.end())
    return;
  for (uint64_t granule : found->second)
    device.files[granule].blocks--;
  close_unused(device, found->second);
  device.shared.erase(found);
  device.shared_count.store(device.shared.size(), std::memory_order_relaxed);
}

cca::ShareableHandle Allocator::shareIpcHandle(void* pointer) {
  Device* d = owner(pointer);
  if (d == nullptr)
    return native_->shareIpcHandle(pointer);
  static const char version = handle_version();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  uint64_t begin = 0, granularity = 0;
  std::string handle(1, version);
  if (stplan_granule(d->runtime.load(), address, &begin, &granularity) != STPLAN_OK) {
    unsigned char plain[SP_HANDLE_BYTES];
    uint64_t offset = 0;
    TORCH_CHECK(stplan_export(d->runtime.load(), address, plain, &offset) == STPLAN_OK,
                "the driver does not share this tensor's memory between processes");
    handle.push_back(kPlain);
    handle.append(reinterpret_cast<const char*>(plain), sizeof plain);
    return {static_cast<ptrdiff_t>(offset), std::move(handle)};
  }
  TORCH_CHECK(version <= kGranulesVersions, "stplan does not know how this torch shares virtual memory between "
              "processes; run with memory=\"plain\" (stplan run --memory plain)");
  stplan_range block;
  TORCH_CHECK(stplan_find(d->runtime.load(), address, &block) == STPLAN_OK, "invalid device pointer: ", pointer);
  // Large blocks may take several granules. torch's format has one size for all of a block. They have, unless
  // memory has moved to it in small granules, which a large one was put together from.
  std::vector<uint64_t> granules;
  for (uint64_t at = begin; at < address + block.size; at += granularity) {
    uint64_t start = 0, size = 0;
    TORCH_CHECK(stplan_granule(d->runtime.load(), at, &start, &size) == STPLAN_OK && start == at && size == granularity,
                "this tensor cannot be shared between processes: its memory was moved there in granules of several sizes; "
                "run with moving off (stplan run --move off)");
    granules.push_back(at);
  }
  Granules header;
  std::memset(&header, 0, sizeof header);
  header.pid = getpid();
  header.size = granularity;
  header.count = granules.size();
  handle.push_back(kGranules);
  header.kind = kFiles;
  handle.append(reinterpret_cast<const char*>(&header), version < kKindVersion ? offsetof(Granules, kind) : sizeof header);
  for (int file : share(*d, address, granules))
    handle.append(reinterpret_cast<const char*>(&file), sizeof file);
  return {static_cast<ptrdiff_t>(address - begin), std::move(handle)};
}

// enablePeerAccess gives `device` access to the memory of `to`.
void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex to) {
  native_->enablePeerAccess(device, to);
  Device& d = at(to);
  if (stplan_device* runtime = served(d))
    TORCH_CHECK(stplan_allow_peer(runtime, device) == STPLAN_OK, "cuda:", static_cast<int>(device),
                " cannot be given access to the memory of cuda:", static_cast<int>(to));
}

cudaError_t Allocator::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t count,
                                   cudaStream_t stream, bool peers) {
  if (plain_ || peers || to_device == from_device)
    return native_->memcpyAsync(to, to_device, from, from_device, count, stream, peers);
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, count, stream);
}

} // namespace stplan
