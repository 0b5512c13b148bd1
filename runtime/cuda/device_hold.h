/* device_hold.h: while a graph is captured, no memory is given back. */
#ifndef STPLAN_DEVICE_HOLD_H
#define STPLAN_DEVICE_HOLD_H

/* sp_hold_enter begins to wait for a device and to give its memory back. 0 if that is held
 * up at present (stplan_hold); otherwise a hold waits for sp_hold_leave. Called without the
 * lock of a device object. */
int sp_hold_enter(void);
void sp_hold_leave(void);

#endif
