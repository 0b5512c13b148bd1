/* cuda_runtime.h: the part that torch's headers need. The real one includes headers of
 * the compiler nvcc, which the packages that torch installs do not contain. */
#include <cuda_runtime_api.h>
