// fake_cuda.h: a simulated device for the shim and torch's native allocator.
#pragma once

#include <cstddef>

// The device's memory, in bytes.
#ifndef FAKE_CUDA_MIB
#define FAKE_CUDA_MIB 512
#endif
// The number of devices. All are the same device; torch's streams name one of them, so a
// test with a stream of another device needs two.
#ifndef FAKE_CUDA_DEVICES
#define FAKE_CUDA_DEVICES 1
#endif

constexpr size_t kFakeCudaTotal = size_t(FAKE_CUDA_MIB) << 20;

// fake_cuda_used is the number of bytes allocated by cudaMalloc and not freed yet.
size_t fake_cuda_used();

// fake_cuda_waits is the number of calls that order streams: events recorded, and streams
// that the host waited for.
int fake_cuda_waits();
