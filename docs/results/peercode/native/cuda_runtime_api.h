// What the code of GMLake and STAlloc, and the headers of PyTorch that it includes, name of
// CUDA's runtime. device.cpp has the part that is called; the rest is declared only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
};
typedef enum cudaError cudaError_t;

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;

enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
typedef struct {
  char reserved[64];
} cudaIpcMemHandle_t;

#define cudaEventDefault 0x00
#define cudaEventDisableTiming 0x02
#define cudaIpcMemLazyEnablePeerAccess 0x01

extern "C" {
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError(void);

cudaError_t cudaMalloc(void** at, size_t size);
cudaError_t cudaFree(void* at);
cudaError_t cudaMemGetInfo(size_t* unused, size_t* total);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, enum cudaMemcpyKind, cudaStream_t);

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);

cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int flags);
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus*);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, enum cudaStreamCaptureStatus*, unsigned long long* id);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode*);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);

cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t, unsigned int flags);
cudaError_t cudaIpcCloseMemHandle(void* at);
}
