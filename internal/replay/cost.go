package replay

// Cost is what serving a program takes, in bytes: the most that the allocator
// reserved at once, and what it gave back to the device and took again to keep
// that low. The host waits for the device whenever memory moves. Ended says that a plan of a recorded process served it,
// and that the program did to its end what that was recorded from.
type Cost struct {
	Reserved, Moved int64
	Ended           bool
}
