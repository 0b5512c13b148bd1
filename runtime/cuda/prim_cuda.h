/* prim_cuda.h: the device primitives on the CUDA driver, which is opened at run
 * time: nothing of CUDA is needed to build. */
#ifndef STPLAN_PRIM_CUDA_H
#define STPLAN_PRIM_CUDA_H

#include "prim.h"

/* How memory is taken. */
typedef enum {
  SP_CUDA_PLAIN,   /* cuMemAlloc: separate extents, given back whole; what NCCL's registration, RDMA and IPC know */
  SP_CUDA_VIRTUAL, /* cuMemCreate and cuMemMap: grows in place, and parts are given back */
  SP_CUDA_AUTO     /* virtual if the device has that, plain otherwise */
} sp_cuda_memory;

/* sp_cuda_open makes primitives for a device by its ordinal, in its primary context,
 * which is created if there is none yet. 0 if there is no driver or no such device, or
 * if it lacks what is asked for; then error, a buffer of `size` bytes, says which. */
int sp_cuda_open(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size);

#endif
