/* prim_cuda_memory.c: memory of a CUDA device, plain and virtual. */
#include <stdlib.h>

#include "prim_cuda_driver.h"
#include "sizes.h"

/* create makes memory. A device may know fabric handles and the process may not use them,
 * as it has no channel of IMEX: then they are not asked for any more. */
static cu_result create(cuda *c, cu_handle *handle, uint64_t bytes) {
  pthread_mutex_lock(&c->lock);
  cu_allocation asked = c->allocation;
  pthread_mutex_unlock(&c->lock);
  cu_result result = c->cu.create(handle, bytes, &asked, 0);
  if (result == CU_SUCCESS || result == CU_OUT_OF_MEMORY || !(asked.requested_handle_types & CU_HANDLE_FABRIC))
    return result;
  asked.requested_handle_types &= ~CU_HANDLE_FABRIC;
  result = c->cu.create(handle, bytes, &asked, 0);
  if (result != CU_SUCCESS)
    return result;
  pthread_mutex_lock(&c->lock);
  c->allocation = asked;
  pthread_mutex_unlock(&c->lock);
  return result;
}

/* granules is how many bytes of virtual memory some bytes take. */
static uint64_t granules(const cuda *c, uint64_t bytes) { return sp_round_up(bytes, c->granularity); }

/* holding is the region that holds an address, or NULL. Locked. */
static region *holding(const cuda *c, uint64_t addr) {
  region *r = c->regions;
  while (r != NULL && (addr < r->start || addr >= r->end))
    r = r->next;
  return r;
}

/* in_pieces says whether a granule of a region has memory in pieces of the least granules. Locked. */
static int in_pieces(const region *r, uint64_t addr) { return r->pieces != NULL && r->pieces[(addr - r->start) / r->unit]; }

/* step is the bytes of the handle at an address that has memory. */
static uint64_t step(cuda *c, uint64_t addr) {
  pthread_mutex_lock(&c->lock);
  const region *r = holding(c, addr);
  uint64_t bytes = r == NULL || in_pieces(r, addr) ? c->granularity : r->unit;
  pthread_mutex_unlock(&c->lock);
  return bytes;
}

/* unmap undoes map for the first `bytes` of a range, and returns how many of them the driver has
 * taken back. */
static uint64_t unmap(cuda *c, uint64_t addr, uint64_t bytes) {
  uint64_t taken = 0, size;
  for (uint64_t at = 0; at < bytes; at += size) {
    size = step(c, addr + at);
    if (c->cu.unmap(addr + at, size) == CU_SUCCESS)
      taken += size;
  }
  return taken;
}

/* note_pieces notes how the granule at an address gets its memory. Nonzero without host memory. */
static int note_pieces(cuda *c, uint64_t addr, int pieces) {
  pthread_mutex_lock(&c->lock);
  region *r = holding(c, addr);
  uint64_t granules = (r->base + r->reserved - r->start) / r->unit;
  if (r->pieces == NULL && pieces)
    r->pieces = calloc(granules, 1);
  int failed = r->pieces == NULL && pieces;
  if (r->pieces != NULL)
    r->pieces[(addr - r->start) / r->unit] = (uint8_t)pieces;
  pthread_mutex_unlock(&c->lock);
  return failed;
}

/* map_handle maps the memory at address old, or new memory if that is 0. The handle is released at
 * once: the memory then lives until it is unmapped everywhere. Nonzero is failure. */
static int map_handle(cuda *c, uint64_t addr, uint64_t bytes, uint64_t old) {
  cu_handle handle;
  cu_result got = old == 0 ? create(c, &handle, bytes) : c->cu.retain_handle(&handle, (void *)(uintptr_t)old);
  if (got != CU_SUCCESS)
    return 1;
  int failed = c->cu.map(addr, bytes, 0, handle, 0) != CU_SUCCESS;
  c->cu.mem_release(handle);
  return failed;
}

/* map gives [addr, addr+bytes), whole granules of `unit`, memory: first what is at `from`. Handles of
 * the least size are put together to granules. Nonzero is failure. */
static int map(cuda *c, uint64_t addr, uint64_t bytes, uint64_t unit, const sp_span *from, size_t spans) {
  uint64_t at = 0, old = 0, size = unit;
  int failed = 0;
  while (at < bytes) {
    int first = at % unit == 0, carried = spans > 0;
    size = carried ? step(c, from->addr + old) : first ? unit : size;
    failed = first ? size > unit || note_pieces(c, addr + at, size < unit) : size != c->granularity;
    if (failed || (failed = map_handle(c, addr + at, size, carried ? from->addr + old : 0)) != 0)
      break;
    at += size;
    old += size;
    if (carried && old >= from->bytes) {
      from++;
      spans--;
      old = 0;
    }
  }
  pthread_mutex_lock(&c->lock); /* no further device is let in meanwhile */
  failed = failed || c->cu.set_access(addr, bytes, c->access, c->accesses) != CU_SUCCESS;
  pthread_mutex_unlock(&c->lock);
  if (failed)
    unmap(c, addr, at);
  return failed;
}

/* vacant is a region without memory that was left for this, or NULL. Locked. */
static region *vacant(const cuda *c, uint64_t span, uint64_t unit) {
  region *r = c->regions;
  while (r != NULL && (r->mapped > 0 || r->unit != unit || r->base + r->reserved - r->start < span))
    r = r->next;
  return r;
}

/* reserve is a region for `bytes` in granules of `unit`. If memory moves, it may have been used
 * before. NULL if there is none. Locked. */
static region *reserve(cuda *c, uint64_t bytes, uint64_t unit) {
  uint64_t span = c->still ? granules(c, bytes) : sp_round_up(bytes, unit);
  region *r = c->still ? NULL : vacant(c, span, unit);
  if (r != NULL) {
    r->end = r->start + span;
    return r;
  }
  r = calloc(1, sizeof *r);
  cu_address base;
  uint64_t all = span + (c->still ? c->granularity : unit);
  if (r == NULL || c->cu.address_reserve(&base, all, 0, 0, 0) != CU_SUCCESS) {
    free(r);
    return NULL;
  }
  uint64_t start = base;
  if (c->still) {
    uint64_t handle = sp_handle_size(bytes, SP_HANDLE_MOST, c->granularity);
    unit = span % handle == 0 ? handle : c->granularity;
  } else {
    start = sp_round_up(base, unit);
  }
  *r = (region){.next = c->regions, .base = base, .reserved = all, .start = start, .end = start + span, .unit = unit};
  c->regions = r;
  return r;
}

/* An address for memory, and how large its granules are. */
typedef struct {
  uint64_t addr, unit;
} spot;

/* place is where `bytes` of memory go, which it counts as mapped: `at`, or, if that is 0,
 * the start of a new region for `room` bytes. The address is 0 if there is none. */
static spot place(cuda *c, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit) {
  spot found = {0};
  pthread_mutex_lock(&c->lock);
  region *r = at == 0 ? reserve(c, room, unit) : holding(c, at);
  if (r != NULL && (at == 0 || (r->mapped > 0 && bytes <= r->end - at))) {
    r->mapped += bytes;
    found = (spot){at == 0 ? r->start : at, r->unit};
  }
  pthread_mutex_unlock(&c->lock);
  return found;
}

/* release gives a region's addresses up. Locked, or nobody else uses it. */
static void release(const cuda *c, region *r) {
  c->cu.address_free(r->base, r->reserved);
  free(r->pieces);
  free(r);
}

/* vacate counts bytes as no longer mapped in the region that holds addr. If memory does not
 * move, a region with none left is given up. Otherwise it waits for the next use: until it
 * has been told that the memory is gone, nobody else may get the addresses. */
static void vacate(cuda *c, uint64_t addr, uint64_t bytes) {
  pthread_mutex_lock(&c->lock);
  region **link = &c->regions;
  while (*link != NULL && (addr < (*link)->start || addr >= (*link)->end))
    link = &(*link)->next;
  region *r = *link;
  if (r != NULL && (r->mapped -= bytes) == 0 && c->still) {
    *link = r->next;
    release(c, r);
  }
  pthread_mutex_unlock(&c->lock);
}

static int take_plain(const cuda *c, uint64_t at, uint64_t bytes, uint64_t *addr) {
  cu_address got;
  if (at != 0 || c->cu.mem_alloc(&got, bytes) != CU_SUCCESS)
    return 1;
  *addr = got;
  return 0;
}

static int take_virtual(cuda *c, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, const sp_span *from, size_t spans, uint64_t *addr) {
  /* Granules are taken one by one. What the device cannot give as a whole is
   * not begun: meanwhile other programs would find it without memory. */
  size_t available, total;
  bytes = granules(c, bytes);
  uint64_t fresh = bytes;
  for (size_t i = 0; i < spans; i++)
    fresh -= from[i].bytes;
  if (fresh > 0 && (c->cu.mem_info(&available, &total) != CU_SUCCESS || available < fresh))
    return 1;
  spot start = place(c, at, bytes, room, unit);
  if (start.addr == 0)
    return 1;
  if (map(c, start.addr, bytes, start.unit, from, spans)) {
    vacate(c, start.addr, bytes);
    return 1;
  }
  *addr = start.addr;
  return 0;
}

int sp_cuda_extend(void *self, uint64_t at, uint64_t bytes, uint64_t room, uint64_t unit, uint64_t *addr) {
  cuda *c = self;
  int mode;
  if (!sp_cuda_begin(c, &mode))
    return 1;
  return sp_cuda_end(c, mode, c->is_virtual ? take_virtual(c, at, bytes, room, unit, NULL, 0, addr) : take_plain(c, at, bytes, addr));
}

int sp_cuda_carry(void *self, uint64_t at, uint64_t bytes, const sp_span *from, size_t spans) {
  cuda *c = self;
  uint64_t addr;
  int mode;
  if (!sp_cuda_begin(c, &mode))
    return 1;
  return sp_cuda_end(c, mode, take_virtual(c, at, bytes, 0, 0, from, spans, &addr));
}

int sp_cuda_give_back(void *self, uint64_t addr, uint64_t bytes) {
  cuda *c = self;
  int mode, failed;
  if (!sp_cuda_begin(c, &mode))
    return 1;
  if (c->is_virtual) {
    uint64_t taken = unmap(c, addr, granules(c, bytes));
    failed = taken == 0;
    vacate(c, addr, taken);
  } else {
    failed = c->cu.mem_free(addr) != CU_SUCCESS;
  }
  return sp_cuda_end(c, mode, failed);
}

void sp_cuda_stop_moving(void *self) {
  cuda *c = self;
  pthread_mutex_lock(&c->lock);
  c->still = 1;
  pthread_mutex_unlock(&c->lock);
}

int sp_cuda_granule_at(void *self, uint64_t addr, uint64_t *base, uint64_t *size) {
  cuda *c = self;
  pthread_mutex_lock(&c->lock);
  const region *r = holding(c, addr);
  if (r != NULL) {
    *size = in_pieces(r, addr) ? c->granularity : r->unit;
    *base = r->start + sp_round_down(addr - r->start, *size);
  }
  pthread_mutex_unlock(&c->lock);
  return r == NULL;
}

int sp_cuda_export_handle(void *self, uint64_t addr, unsigned char handle[SP_HANDLE_BYTES], uint64_t *offset) {
  cuda *c = self;
  cu_address base;
  size_t size;
  if (!sp_cuda_enter(c))
    return 1;
  int failed = c->cu.address_range(&base, &size, addr) != CU_SUCCESS || c->cu.ipc_handle(handle, base) != CU_SUCCESS;
  if (!failed)
    *offset = addr - base;
  return sp_cuda_leave(c, failed);
}

int sp_cuda_export_granule(void *self, uint64_t addr, int *file) {
  cuda *c = self;
  cu_handle handle;
  if (!sp_cuda_enter(c))
    return 1;
  int failed = c->cu.retain_handle(&handle, (void *)(uintptr_t)addr) != CU_SUCCESS;
  if (!failed) {
    failed = c->cu.export_file(file, handle, CU_HANDLE_FILE, 0) != CU_SUCCESS;
    c->cu.mem_release(handle);
  }
  return sp_cuda_leave(c, failed);
}

int sp_cuda_room(void *self, uint64_t *bytes) {
  cuda *c = self;
  size_t available, total;
  int mode;
  if (!sp_cuda_begin(c, &mode))
    return 1;
  int failed = c->cu.mem_info(&available, &total) != CU_SUCCESS;
  if (!failed)
    *bytes = available;
  return sp_cuda_end(c, mode, failed);
}

/* let_in gives access to the mapped granules of a region. The driver refuses
 * for a granule that is not mapped; once all mapped bytes have been found, no
 * more are tried. Locked. */
static void let_in(const cuda *c, const region *r) {
  uint64_t found = 0;
  for (uint64_t at = r->start; at < r->end && found < r->mapped; at += r->unit)
    if (c->cu.set_access(at, r->unit, c->access, c->accesses) == CU_SUCCESS)
      found += r->unit;
}

/* Plain memory is open to every device that the program has let in by itself. */
int sp_cuda_allow_peer(void *self, int ordinal) {
  cuda *c = self;
  if (!sp_cuda_enter(c))
    return 1;
  pthread_mutex_lock(&c->lock);
  size_t i = 0;
  while (i < c->accesses && c->access[i].location.id != ordinal)
    i++;
  int failed = i == SP_PEERS;
  if (i == c->accesses && !failed) {
    c->access[c->accesses++] = (cu_access){.location = {CU_LOCATION_DEVICE, ordinal}, .flags = CU_READ_WRITE};
    for (const region *r = c->regions; r != NULL; r = r->next)
      let_in(c, r);
  }
  pthread_mutex_unlock(&c->lock);
  return sp_cuda_leave(c, failed);
}

void sp_cuda_drop_regions(cuda *c) {
  while (c->regions != NULL) {
    region *r = c->regions;
    c->regions = r->next;
    release(c, r);
  }
}
