//go:build !cgo

package cuda

// Device is a device object. This build has none.
type Device struct{}

// Open returns ErrNotBuilt.
func Open([]byte, int, Options) (*Device, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Device) Close() {}

// Malloc returns ErrNotBuilt.
func (*Device) Malloc(uint64, uint64) (uint64, Source, error) { return 0, 0, ErrNotBuilt }

// Free returns ErrNotBuilt.
func (*Device) Free(uint64, uint64) error { return ErrNotBuilt }

// RecordStream returns ErrNotBuilt.
func (*Device) RecordStream(uint64, uint64) error { return ErrNotBuilt }

// BeginExchange returns 0.
func (*Device) BeginExchange() uint64 { return 0 }

// AwaitExchange does nothing.
func (*Device) AwaitExchange(uint64, uint64) {}

// StopMoving does nothing.
func (*Device) StopMoving() {}

// KeepHistory returns ErrNotBuilt.
func (*Device) KeepHistory(uint64) error { return ErrNotBuilt }

// Step does nothing.
func (*Device) Step(int) {}

// LearnDue returns false.
func (*Device) LearnDue(int) bool { return false }

// LearnDueAtEnd returns false.
func (*Device) LearnDueAtEnd(int) bool { return false }

// LearnMade does nothing.
func (*Device) LearnMade() {}

// Install returns ErrNotBuilt.
func (*Device) Install([]byte, int) error { return ErrNotBuilt }

// WriteHistory returns ErrNotBuilt.
func (*Device) WriteHistory(string, int) error { return ErrNotBuilt }

// Prove does nothing.
func (*Device) Prove(uint64) {}

// Operations returns into as it is.
func (*Device) Operations(into []Operation) []Operation { return into }

// Misplaced returns 0.
func (*Device) Misplaced() uint64 { return 0 }

// Counters returns zeros.
func (*Device) Counters() Counters { return Counters{} }
