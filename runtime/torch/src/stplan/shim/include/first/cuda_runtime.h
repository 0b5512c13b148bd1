/* cuda_runtime.h: the part that torch's headers need. The real one has headers of
 * the compiler nvcc behind it, which torch's own packages do not bring along. */
#include <cuda_runtime_api.h>
