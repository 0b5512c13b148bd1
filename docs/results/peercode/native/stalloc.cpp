// STAlloc's runtime behind a pipe: its main.cpp as it is. The plan is where
// STALLOC_MODEL_INFO_PATH says.
#include "main.cpp"

#include "device.h"
#include "serve.h"

void peer_begin() {}

void* peer_alloc(size_t size, uint64_t stream) {
  return my_malloc(static_cast<ssize_t>(size), 0, reinterpret_cast<cudaStream_t>(stream));
}

void peer_free(void* at, size_t size, uint64_t stream) {
  my_free(at, static_cast<ssize_t>(size), 0, reinterpret_cast<cudaStream_t>(stream));
}

// It does not hear of other streams.
void peer_free_busy(void* at, size_t size, uint64_t stream, uint64_t) { peer_free(at, size, stream); }

// It does not hear of this either: PyTorch refuses to empty the cache of such an allocator.
void peer_empty_cache() {}

Usage peer_usage() { return {device_used(), device_most_used(), static_cast<size_t>(global_allocated)}; }
