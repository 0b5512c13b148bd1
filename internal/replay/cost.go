package replay

// Cost is what serving a program takes, in bytes: the most that the allocator
// reserved at once, and what it gave back to the device and took again to keep
// that low. The host waits for the device whenever memory moves. Planned is
// how many allocations were on plan.
type Cost struct{ Reserved, Moved, Planned int64 }
