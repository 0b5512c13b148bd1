/* conformance.h: what holds of the runtime on any device primitives. */
#ifndef STPLAN_CONFORMANCE_H
#define STPLAN_CONFORMANCE_H

#include <stdio.h>
#include <stdlib.h>

#include "../prim.h"
#include "../stplan.h"

#define DEMAND(what)                                                      \
  do {                                                                    \
    if (!(what)) {                                                        \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);  \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

/* What a suite runs on: primitives with at least this capacity in bytes, and
 * three streams. */
typedef struct {
  sp_prim (*open)(uint64_t capacity);
  uint64_t stream[3];
} conformance_device;

/* conformance runs every case, each on primitives of its own. It exits with 1
 * at the first that does not hold. */
void conformance(const conformance_device *on);

#endif
