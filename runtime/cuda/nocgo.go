//go:build !cgo

package cuda

// Device is a device object. This build has none.
type Device struct{}

// Open answers ErrNotBuilt.
func Open([]byte, int, Options) (*Device, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Device) Close() {}

// Malloc answers ErrNotBuilt.
func (*Device) Malloc(uint64, uint64) (uint64, Source, error) { return 0, 0, ErrNotBuilt }

// Free answers ErrNotBuilt.
func (*Device) Free(uint64, uint64) error { return ErrNotBuilt }

// RecordStream answers ErrNotBuilt.
func (*Device) RecordStream(uint64, uint64) error { return ErrNotBuilt }

// Operations answers nothing.
func (*Device) Operations(into []Operation) []Operation { return into }

// Counters answers zeros.
func (*Device) Counters() Counters { return Counters{} }
