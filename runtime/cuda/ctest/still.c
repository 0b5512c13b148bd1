/* still.c: what has the memory of a process stop moving, and what does not, on simulated
 * devices.
 *
 *   still asked|registers|ranks|world|one|unregistered */
#include <string.h>

#include "../device_hold.h"
#include "../pluggable.h"
#include "../prim_host.h"

#include "conformance.h"

enum { MIB = 1 << 20 };

static int open_host(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  const sp_host_options options = {
      .base = UINT64_C(1) << (40 + ordinal), .capacity = UINT64_C(256) * MIB, .granularity = 2 * MIB, .partial = 1};
  (void)memory, (void)error, (void)size;
  return sp_host_open(&options, prim);
}

static void note(sp_throw_class class, const char *message) {
  fprintf(stderr, "%d %s\n", (int)class, message);
  abort();
}

static int asked_for; /* times that the number of ranks was asked for */

static int two(void) { return asked_for++, 2; }
static int one(void) { return asked_for++, 1; }

/* held says whether memory cannot be given back. */
static int held(void) {
  if (!sp_hold_enter())
    return 1;
  sp_hold_leave();
  return 0;
}

int main(int argc, char **argv) {
  const stplan_pool_id pool = {0, 7};
  stplan_settings settings = {.memory = SP_CUDA_VIRTUAL};
  char error[128];
  DEMAND(argc == 2);
  const char *way = argv[1];
  int at_start = strcmp(way, "asked") == 0 || strcmp(way, "registers") == 0;
  settings.still = strcmp(way, "asked") == 0;
  if (strcmp(way, "registers") == 0)
    setenv("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "True", 1);
  if (strcmp(way, "ranks") == 0)
    settings.ranks = two;
  if (strcmp(way, "one") == 0)
    settings.ranks = one;
  if (strcmp(way, "world") == 0 || strcmp(way, "unregistered") == 0)
    setenv("WORLD_SIZE", "2", 1);
  if (strcmp(way, "unregistered") == 0)
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
  DEMAND(stplan_pluggable_start_on(open_host, note, &settings, error, sizeof error) == STPLAN_OK);
  void *p = stplan_pluggable_malloc(512, 0, NULL);
  DEMAND(p != NULL && stplan_moves(stplan_at(0)) == !at_start);
  for (int i = 0; i < 2; i++) {
    stplan_pluggable_begin_pool(0, pool, NULL);
    stplan_pluggable_begin_pool(1, pool, NULL);
    DEMAND(held());
    stplan_pluggable_end_pool(0, pool);
    DEMAND(held());
    stplan_pluggable_end_pool(1, pool);
    stplan_pluggable_end_pool(1, pool); /* of nothing */
    DEMAND(!held());
  }
  int moves = strcmp(way, "one") == 0 || strcmp(way, "unregistered") == 0;
  DEMAND(stplan_moves(stplan_at(0)) == moves && stplan_moves(stplan_at(1)) == moves); /* the second is opened here */
  DEMAND(asked_for == (settings.ranks == one ? 4 : settings.ranks == two));
  DEMAND(stplan_pluggable_pin((uintptr_t)p, 512, 1) == STPLAN_OK && stplan_pluggable_pin(1, 512, 1) == STPLAN_BAD_POINTER);
  stplan_pluggable_free(p, 512, 0, NULL);
  stplan_pluggable_empty_cache();
  DEMAND(stplan_pluggable_pin((uintptr_t)p, 512, 0) == STPLAN_OK && stplan_pluggable_pin((uintptr_t)p, 512, 0) == STPLAN_BAD_POINTER);
  return 0;
}
