/* process.c: the devices of a process, and what callers can ask about their
 * memory, on simulated devices.
 *
 *   process PLAN DAMAGED: a plan of device 0 whose first request is of 4096 bytes, and a file
 *   that is not a plan */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../prim_host.h"
#include "../process.h"

#include "conformance.h"

enum { MIB = 1 << 20, MISSING = 5 };

static int opened;

static int open_host(int ordinal, sp_cuda_memory memory, sp_prim *prim, char *error, size_t size) {
  const sp_host_options options = {
      .base = UINT64_C(1) << (40 + ordinal), .capacity = UINT64_C(64) * MIB, .granularity = 2 * MIB, .partial = memory != SP_CUDA_PLAIN};
  opened++;
  if (ordinal == MISSING) {
    snprintf(error, size, "no such device");
    return 0;
  }
  return sp_host_open(&options, prim);
}

static void the_start_may_fail(const char *damaged) {
  char error[128] = "";
  stplan_settings settings = {.plan = damaged, .memory = SP_CUDA_AUTO};
  DEMAND(stplan_at(0) == NULL && opened == 0);
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_BAD_PLAN && error[0] != 0);
  settings.plan = "nowhere";
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_FAILED && strstr(error, "nowhere") != NULL);
  DEMAND(stplan_at(0) == NULL && opened == 0);
}

static void devices_are_opened_once(const char *plan) {
  char error[128] = "";
  const stplan_settings settings = {.plan = plan, .counters = "counters", .memory = SP_CUDA_AUTO};
  stplan_source source;
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_OK);
  DEMAND(stplan_start_on(open_host, &settings, error, sizeof error) == STPLAN_FAILED && strcmp(error, "started before") == 0);
  DEMAND(opened == 0);
  DEMAND(truncate(plan, 0) == 0); /* it is not needed any more */
  stplan_device *other = stplan_at(3);
  DEMAND(other != NULL && stplan_at(3) == other && opened == 1 && stplan_planned(3));
  DEMAND(stplan_malloc(other, 4096, 0, &source, NULL) != 0 && source == STPLAN_FROM_PLAN);
  DEMAND(stplan_at(1) != NULL && !stplan_planned(1)); /* it is lent once */
  DEMAND(stplan_at(0) != NULL && stplan_planned(0)); /* the plan's own */
  DEMAND(stplan_at(MISSING) == NULL && stplan_at(MISSING) == NULL && !stplan_planned(MISSING) && opened == 4);
  DEMAND(stplan_at(-1) == NULL && stplan_at(STPLAN_DEVICES) == NULL);
}

static void counters_are_in_files(void) {
  stplan_counters c;
  struct stat facts;
  FILE *f = fopen("counters3", "rb");
  DEMAND(f != NULL && fread(&c, sizeof c, 1, f) == 1);
  fclose(f);
  DEMAND(c.fields == sizeof c / sizeof(uint64_t) && c.planned_allocations == 1 && c.allocated_bytes == 4096);
  DEMAND(stat("counters5", &facts) != 0);
}

static int seen[2];
static uint64_t seen_bytes[2];

static void see(void *context, stplan_event event, uint64_t address, uint64_t size) {
  DEMAND(context == seen && address != 0);
  DEMAND(event == STPLAN_MAPPED || event == STPLAN_UNMAPPED);
  seen[event]++;
  seen_bytes[event] += size;
}

static void memory_is_told(void) {
  stplan_device *d = stplan_at(1);
  stplan_range r, list[64];
  stplan_statistics s;
  uint64_t base, size;
  stplan_watch(d, see, seen);
  uint64_t p = stplan_malloc(d, 700, 7, NULL, NULL), q = stplan_malloc(d, 3 * MIB, 7, NULL, NULL);
  DEMAND(seen[1] == 2 && seen_bytes[1] == 6 * MIB && seen[0] == 0);
  DEMAND(stplan_find(d, p, &r) == STPLAN_OK && r.size == 1024 && r.requested == 700 && r.stream == 7 && r.live);
  DEMAND(stplan_find(d, p + 512, &r) == STPLAN_BAD_POINTER);
  DEMAND(stplan_extent(d, q, &base, &size) == STPLAN_OK && base <= q && size == 4 * MIB);
  size_t count = stplan_ranges(d, list, 64), live = 0;
  uint64_t bytes = 0;
  DEMAND(count >= 3 && stplan_ranges(d, NULL, 0) == count);
  for (size_t i = 0; i < count; i++) {
    DEMAND(i == 0 || list[i - 1].address < list[i].address);
    bytes += list[i].size;
    live += list[i].live;
  }
  stplan_measure(d, &s);
  DEMAND(bytes == s.reserved.current && live == s.all.blocks.current && s.extents.current == 2);
  DEMAND(stplan_largest(d) >= MIB && stplan_largest(d) < 2 * MIB);
  stplan_hold(1);
  DEMAND(stplan_release(d, q, &r) == STPLAN_OK && r.size == 3 * MIB && r.requested == 3 * MIB);
  DEMAND(stplan_release(d, q, &r) == STPLAN_BAD_POINTER && stplan_release(d, 12345, NULL) == STPLAN_BAD_POINTER);
  DEMAND(stplan_empty_cache(d) == 0);
  stplan_hold(0);
  DEMAND(stplan_empty_cache(d) == 4 * MIB && seen[0] >= 1 && seen_bytes[0] == 4 * MIB);
  stplan_measure(d, &s);
  DEMAND(s.extents.current == 1 && s.extents.peak == 2 && s.reserved.current == 2 * MIB && s.reserved.removed == 4 * MIB);
  stplan_counters c;
  stplan_read(d, &c);
  DEMAND(c.refused_frees == 0 && c.frees == 1);
  stplan_release(d, p, NULL);
}

static void usage_is_counted(void) {
  stplan_device *d = stplan_at(1);
  stplan_statistics s, beside;
  memset(&beside, 0, sizeof beside);
  stplan_reset_peaks(d);
  stplan_reset_sums(d);
  uint64_t p = stplan_malloc(d, MIB, 0, NULL, NULL), q = stplan_malloc(d, MIB + 1, 0, NULL, NULL);
  stplan_measure(d, &s);
  DEMAND(s.small.bytes.current == 0 && s.large.bytes.current == 2 * MIB + 512 && s.large.requested.current == 2 * MIB + 1);
  uint64_t small = stplan_malloc(d, 4096, 0, NULL, NULL);
  stplan_measure(d, &s);
  DEMAND(s.small.bytes.current == 4096 && s.small_reserved.current >= 4096 && s.small_reserved.current < s.reserved.current && s.small_extents.current == 1);
  stplan_release(d, small, NULL);
  stplan_reset_peaks(d);
  stplan_reset_sums(d);
  stplan_measure(d, &s);
  DEMAND(s.all.blocks.current == 2 && s.all.blocks.added == 0 && s.all.blocks.removed == 0);
  stplan_release(d, q, NULL);
  beside.all.bytes.current = beside.small.bytes.current = 10 * MIB;
  stplan_beside(d, &beside);
  stplan_measure(d, &s);
  DEMAND(s.all.bytes.current == MIB && s.all.bytes.peak == 11 * MIB && s.large.bytes.peak == 2 * MIB + 512);
  DEMAND(s.all.bytes.removed == MIB + 512 && s.all.requested.peak == 2 * MIB + 1);
  stplan_release(d, p, NULL);
  stplan_reset_peaks(d);
  stplan_reset_sums(d);
  stplan_measure(d, &s);
  DEMAND(s.all.bytes.peak == 10 * MIB && s.all.bytes.added == 0 && s.all.bytes.removed == 0 && s.all.blocks.peak == 0);
}

int main(int argc, char **argv) {
  DEMAND(argc == 3);
  the_start_may_fail(argv[2]);
  devices_are_opened_once(argv[1]);
  counters_are_in_files();
  memory_is_told();
  usage_is_counted();
  return 0;
}
