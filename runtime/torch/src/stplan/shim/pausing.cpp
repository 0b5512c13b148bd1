// pausing.cpp: idle memory is given to others for a while.
#include "allocator.h"

namespace stplan {

// The status of several devices: the first that is not STPLAN_OK.
static void add(stplan_status& all, stplan_status one) { all = all == STPLAN_OK ? one : all; }

stplan_status Allocator::pause(int device, uint64_t* given) {
  *given = 0;
  if (forked())
    return STPLAN_OK; // the memory is the parent's
  if (captures())
    return STPLAN_HELD;
  stplan_status status = STPLAN_OK;
  uint64_t held = 0, left = 0;
  each([&](Device& d, stplan_device* runtime) {
    uint64_t bytes = 0;
    if (device < 0 || device == d.index)
      add(status, stplan_pause(runtime, &bytes));
    *given += bytes;
    held += native_reserved(d.index);
  });
  Delegating::emptyCache({0, 0}); // of all devices
  each([&](Device& d, stplan_device*) {
    left += native_reserved(d.index);
    note_native(d);
  });
  *given += held > left ? held - left : 0;
  return status;
}

stplan_status Allocator::resume(int device, uint64_t most, uint64_t* taken) {
  *taken = 0;
  stplan_status status = STPLAN_OK;
  each([&](Device& d, stplan_device* runtime) {
    uint64_t bytes = 0;
    if (device < 0 || device == d.index)
      add(status, stplan_resume(runtime, most, &bytes));
    *taken += bytes;
  });
  return status;
}

bool Allocator::survey(int device, stplan_memory* memory, uint64_t* native) {
  bool served = false;
  each([&](Device& d, stplan_device* runtime) {
    if (device != d.index)
      return;
    stplan_survey(runtime, memory);
    *native = native_reserved(device);
    served = true;
  });
  return served;
}

} // namespace stplan
