/* host_defines.h: the macros that the headers of CUDA's runtime put on declarations, for
 * a C++ compiler that compiles no device code. Used only if the real file, which belongs
 * to nvcc, is missing. */
#ifndef STPLAN_HOST_DEFINES_H
#define STPLAN_HOST_DEFINES_H

#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI

#endif
