// What GMLake's code names of CUDA's driver: virtual memory.
#pragma once

#include <stddef.h>

#define CUDA_VERSION 11070

typedef enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef unsigned long long CUdeviceptr;

enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };

typedef struct {
  int type;
  int id;
} CUmemLocation;
typedef struct {
  int type;
  CUmemLocation location;
} CUmemAllocationProp;
typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

extern "C" {
CUresult cuGetErrorString(CUresult, const char** text);
CUresult cuCtxGetDevice(int* device);
CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, int option);
CUresult cuMemCreate(unsigned long long* handle, size_t size, const CUmemAllocationProp*, unsigned long long flags);
CUresult cuMemRelease(unsigned long long handle);
CUresult cuMemAddressReserve(CUdeviceptr* at, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr at, size_t size);
CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, unsigned long long handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t size);
CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc*, size_t count);
}
