// fake_cuda.h: a device that is none, for the shim and torch's native allocator.
#pragma once

#include <cstddef>

// The device's memory, in bytes.
#ifndef FAKE_CUDA_MIB
#define FAKE_CUDA_MIB 512
#endif
// How many devices there are. All are the same one; torch knows its streams by them.
#ifndef FAKE_CUDA_DEVICES
#define FAKE_CUDA_DEVICES 1
#endif

constexpr size_t kFakeCudaTotal = size_t(FAKE_CUDA_MIB) << 20;

// fake_cuda_used is what cudaMalloc has given and cudaFree not taken back.
size_t fake_cuda_used();

// fake_cuda_waits counts what was asked to order streams: events recorded, and
// streams waited for.
int fake_cuda_waits();
