package report

// Packed is what `pack --json` prints. LowerBound is the max load, or more
// if the exact search has proven more. Fits is null if no placement was found and
// none was ruled out.
type Packed struct {
	Instance      string  `json:"instance"`
	Buffers       int     `json:"buffers"`
	Makespan      int64   `json:"makespan_bytes"`
	LowerBound    int64   `json:"lower_bound_bytes"`
	MaxLoad       int64   `json:"max_load_bytes"`
	MaxLoadAt     int64   `json:"max_load_at"`
	Gap           float64 `json:"gap"`
	Capacity      *int64  `json:"capacity_bytes"`
	Fits          *bool   `json:"fits"`
	Heuristic     string  `json:"heuristic"`
	TimeLimitHit  bool    `json:"time_limit_hit"`
	Seconds       float64 `json:"seconds"`
	OutputWritten *string `json:"output"`
}
