/* fake_driver.h: what a test asks of the simulated driver of fake_driver.c, beside
 * what the runtime asks of it. The test looks these functions up by their names. */
#ifndef STPLAN_FAKE_DRIVER_H
#define STPLAN_FAKE_DRIVER_H

#include <stdint.h>

enum { FAKE_DEVICES = 2, FAKE_GRANULE = 2 << 20, FAKE_TOTAL = 1 << 30 };

/* fake_fail has the n-th call from now on fail, counted from 1; 0: none. Only
 * calls count that the real driver may fail although nothing was wrong before. If the device
 * is lost, all later ones fail too, as they do once a kernel has failed an assertion. */
typedef void fake_fail_function(long n, int lost);

/* fake_calls is the number of such calls since fake_fail. *failed is the name
 * of the one that failed, NULL if none has. */
typedef long fake_calls_function(const char **failed);

/* fake_backed says whether a device may read and write all bytes of a range. */
typedef int fake_backed_function(int device, uint64_t address, uint64_t size);

/* fake_reset has the driver forget all memory, addresses, events, handles and
 * contexts that a failure has left with it. */
typedef void fake_reset_function(void);

/* fake_left is what has not been given back: bytes of memory, bytes of
 * addresses, and numbers of events, contexts and allocation handles. */
typedef struct {
  uint64_t memory, addresses, events, contexts, handles;
} fake_rest;
typedef fake_rest fake_left_function(void);

/* fake_fabric says whether the devices know fabric handles, and whether this process may
 * use them: with a device that knows them and a process that may not, cuMemCreate fails. */
typedef void fake_fabric_function(int known, int permitted);

/* fake_handles is how many handles were made since the last call, and whether the last of
 * them can be exported as a file, 1, and to a fabric, 8. */
typedef uint64_t fake_handles_function(int *exportable);

/* fake_stream makes a stream of a device. */
typedef uint64_t fake_stream_function(int device);

#endif
