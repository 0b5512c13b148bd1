/* device.c: the conformance suite on a real device, with both kinds of memory.
 *
 *   cc -std=c11 -D_POSIX_C_SOURCE=200809L *.c ctest/device.c ctest/conformance.c -lpthread -ldl */
#include <dlfcn.h>

#include "../prim_cuda.h"

#include "conformance.h"

static sp_cuda_memory memory;

static sp_prim open_cuda(uint64_t capacity) {
  sp_prim prim;
  char error[128] = "";
  (void)capacity; /* a device has more */
  if (!sp_cuda_open(0, memory, &prim, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    exit(77);
  }
  return prim;
}

/* make_streams needs a current context, which outlives all primitives. */
static void make_streams(uint64_t streams[3]) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*create)(void **, unsigned);
  DEMAND(library != NULL);
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **)&set = dlsym(library, "cuCtxSetCurrent");
  *(void **)&create = dlsym(library, "cuStreamCreate");
  DEMAND(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0);
  streams[0] = 0; /* the default stream */
  for (int i = 1; i < 3; i++) {
    void *s;
    DEMAND(create(&s, 1) == 0); /* which does not synchronize with the default one */
    streams[i] = (uint64_t)(uintptr_t)s;
  }
}

int main(void) {
  conformance_device device = {.open = open_cuda};
  sp_prim probe = open_cuda(0);
  probe.close(probe.self);
  make_streams(device.stream);
  for (memory = SP_CUDA_PLAIN; memory <= SP_CUDA_VIRTUAL; memory++) {
    conformance(&device);
    printf("%s memory: conforms\n", memory == SP_CUDA_PLAIN ? "plain" : "virtual");
  }
  return 0;
}
