// A device that has no memory and does no work: it gives addresses, counts bytes and knows
// which events are done. What is given at an address is never touched.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Where the n-th cudaMalloc of a size lies: call it once for each, in order.
void device_address(size_t size, uint64_t at);

// What cudaMalloc gives otherwise lies below this, and reserved address space below spaces.
// rising puts reserved address space above spaces instead.
void device_addresses(uint64_t below, uint64_t spaces, bool rising);

// The device has so much memory, in bytes. At first it has more than anybody needs.
void device_memory(size_t size);

// While the device is full, it gives no memory.
void device_full(bool full);

// Events recorded on a busy stream are not done until it is idle again.
void device_busy(uint64_t stream, bool busy);

// Physical bytes given out at present, and the most so far.
size_t device_used();
size_t device_most_used();
