/* conformance.h: what the runtime has to do on any device primitives. */
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

/* What the suite runs on. open makes primitives with at least this capacity in bytes. */
typedef struct {
  sp_prim (*open)(uint64_t capacity);
  uint64_t stream[3];
} conformance_device;

/* conformance runs every case, each on primitives of its own. At the first
 * demand that is not met the process exits with 1. */
void conformance(const conformance_device *on);

#endif
