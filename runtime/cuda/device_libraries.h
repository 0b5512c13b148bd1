/* device_libraries.h: what the device has left for others in this process.
 *
 * cuBLAS, cuDNN, NCCL and the driver take memory of their own when a kernel or a communicator is first used, at any time
 * of a run. If the device has none they fail, in words that do not mention memory (CUBLAS_STATUS_EXECUTION_FAILED), although
 * the pool may have a lot that is idle. So a pool that has taken almost all of the device gives a little of it back as
 * soon as that much is idle, and before it takes the last of it, idle memory moves. */
#ifndef STPLAN_DEVICE_LIBRARIES_H
#define STPLAN_DEVICE_LIBRARIES_H

#include <stdint.h>

typedef struct stplan_device stplan_device;

/* sp_libraries is what is known of the device's free memory, in bytes. Zero at first. */
typedef struct {
  int known;      /* the device has been asked */
  uint64_t asked; /* what it had when it was asked last */
  uint64_t left;  /* of that, less what has been taken since (sp_device_account) */
  uint64_t given; /* what was given back since the device was asked last */
  uint64_t gone;  /* what others have taken of what was given back, in all */
  uint64_t most;  /* that may be reserved while idle memory is looked for; 0: as much as the limit allows */
  unsigned frees; /* since it was last tried to give back */
  unsigned every; /* frees until the next attempt */
} sp_libraries;

/* sp_libraries_look asks the device what it has left, if that may be little, after memory has been taken. Locked; may let
 * go of the lock. */
void sp_libraries_look(stplan_device *d);

/* sp_libraries_spare says whether taking `bytes` would leave libraries too little. Then idle memory is to be moved
 * for them, if there is any: until sp_libraries_done no more than what the device can spare is taken. Locked;
 * may let go of the lock. Growth lock held. */
int sp_libraries_spare(stplan_device *d, uint64_t bytes);
void sp_libraries_done(stplan_device *d);

/* sp_libraries_freed gives back what libraries lack, if so much is idle and the device has done with it. It waits
 * for nothing. Locked; may let go of the lock. */
void sp_libraries_freed(stplan_device *d);

#endif
