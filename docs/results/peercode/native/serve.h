// An allocator of somebody else behind a pipe: requests are read from standard input, one a
// line, and answered on standard output.
//
//   s SIZE ADDRESS       the next cudaMalloc of SIZE bytes not yet named gets ADDRESS; no answer
//   d BELOW SPACES UP    device_addresses, UP is 0 or 1; no answer
//   l SIZE               device_memory; no answer
//   a BUFFER SIZE STREAM an allocation
//   r BUFFER SIZE STREAM an allocation while the device has no memory
//   f BUFFER             its free; no stream has anything left to do with it; no answer
//   p BUFFER             its free, while a stream still uses it; no answer
//   c BUFFER             that stream is done; no answer
//   e                    empty_cache
//
// The answer is "RESERVED PEAK ALLOCATED ADDRESS" in decimal: bytes that the allocator says
// it has reserved, the most so far, bytes that it says are allocated, and the address of an
// allocation: 0 if it ran out of memory, or if the request was not an allocation.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct Usage {
  size_t reserved, peak, allocated;
};

// What an allocator defines. A buffer's size and stream are those of its allocation.
void* peer_alloc(size_t size, uint64_t stream);  // null if it is out of memory
void peer_free(void* at, size_t size, uint64_t stream);
// peer_free_busy is peer_free of a buffer that the stream user still works with.
void peer_free_busy(void* at, size_t size, uint64_t stream, uint64_t user);
void peer_empty_cache();
Usage peer_usage();
// peer_begin is called once, before the first request and after the device is set up.
void peer_begin();
