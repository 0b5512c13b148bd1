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

// shared_file returns the file descriptor by which other processes map a granule. It
// stays open and the same as long as the granule has memory: torch recognises memory that
// it has mapped already by this number.
int Allocator::shared_file(Device& device, uint64_t granule) {
  std::lock_guard<std::mutex> lock(device.sharing);
  auto found = device.shared_files.find(granule);
  if (found != device.shared_files.end())
    return found->second;
  int file = -1;
  TORCH_CHECK(stplan_export_granule(device.runtime.load(), granule, &file) == STPLAN_OK,
              "the driver cannot share this tensor between processes: stplan serves it from virtual memory, and ",
              device.shared_files.size(), " file descriptors are open for sharing; run with memory=\"plain\" "
              "(stplan run --memory plain)");
  return device.shared_files[granule] = file;
}

void Allocator::unshare(Device& device, uint64_t address, uint64_t size) {
  std::lock_guard<std::mutex> lock(device.sharing);
  auto& files = device.shared_files;
  for (auto it = files.lower_bound(address); it != files.end() && it->first < address + size; it = files.erase(it))
    close(it->second);
}

cca::ShareableHandle Allocator::shareIpcHandle(void* pointer) {
  Device* d = owner(pointer);
  if (d == nullptr)
    return native_->shareIpcHandle(pointer);
  static const char version = handle_version();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const uint64_t granularity = stplan_granularity(d->runtime.load());
  std::string handle(1, version);
  if (granularity == 0) {
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
  const uint64_t begin = address / granularity * granularity;
  Granules header;
  std::memset(&header, 0, sizeof header);
  header.pid = getpid();
  header.size = granularity;
  header.count = (address + block.size - begin + granularity - 1) / granularity;
  handle.push_back(kGranules);
  header.kind = kFiles;
  handle.append(reinterpret_cast<const char*>(&header), version < kKindVersion ? offsetof(Granules, kind) : sizeof header);
  for (size_t i = 0; i < header.count; i++) {
    const int file = shared_file(*d, begin + i * granularity);
    handle.append(reinterpret_cast<const char*>(&file), sizeof file);
  }
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
