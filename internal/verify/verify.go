// Package verify proves a plan without the code that made it: from the plan's own
// records, and against the recording if it is given. It shares nothing with the packer
// but the plan format and the events.
package verify

import (
	"fmt"
	"math/bits"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// The rules. Plan checks all but the last five, which AgainstTrace checks. AgainstTrace
// also checks the peaks of a periodic plan, because those are of the whole recording, and
// that what shares a place fits into it.
const (
	RuleDevices     = "devices"     // at least one device, by ordinal, of a known mode and end
	RulePhase       = "phase"       // the phases divide the slots, and each slot is of a kind that its phase may have
	RuleCell        = "cell"        // what is live at the end of every phase is what every body begins with
	RuleShared      = "shared"      // what shares a place names its holder and has the place of that, and all of it fits in there
	RulePass        = "pass"        // recorded passes in order, with the slots they had
	RuleOrder       = "order"       // slots by start, waits by later and earlier slot
	RuleTimes       = "times"       // live ranges not empty, ends in order and in the recording
	RuleAlignment   = "alignment"   // offsets, sizes and the arena in whole units
	RuleBounds      = "bounds"      // every slot inside the arena
	RuleSize        = "size"        // every slot as large as what was asked for
	RuleStream      = "stream"      // every slot on one of the device's streams
	RuleOverlap     = "overlap"     // no address has two live owners
	RuleWait        = "wait"        // exactly the reuses that need a wait are listed, with their kinds
	RuleMakespan    = "makespan"    // the slots end where the arena does, those of each phase at its makespan
	RuleApart       = "apart"       // no byte is used by two streams, if the bound is of that kind
	RuleCertificate = "certificate" // the lower bounds are proven, and the gap is that to the arena
	RuleStray       = "stray"       // stray bytes are the largest sum of the strays of a pass
	RulePeak        = "peak"        // the peaks are those of the slots, or of the recording

	RuleTrace       = "trace"       // the recording makes sense and has the plan's devices
	RuleFingerprint = "fingerprint" // the plan was made from these events
	RuleEvents      = "events"      // the recording has the number of events that the plan claims
	RuleBuffer      = "buffer"      // one slot for each buffer of the recording, and as recorded
	RuleReserved    = "reserved"    // the recorded peak reserved is that of the recording
)

// limit is the largest number of violations of one rule that are listed for one device.
// It keeps a plan that is wrong throughout from taking more memory than a good one.
const limit = 100

// unit is the number of bytes that every account rounds a request up to. Only the
// number is shared with the code that makes plans: needed does its own rounding.
const unit = uint64(trace.Granularity)

// Violation is a rule that does not hold. Device is an ordinal. First and Second are the
// indices of the slots that are to blame, -1 if there are fewer than two.
type Violation struct {
	Rule    string `json:"rule"`
	Device  uint32 `json:"device"`
	First   int    `json:"first_slot"`
	Second  int    `json:"second_slot"`
	Message string `json:"message"`
}

// none is the index of a slot that a violation does not have, and the owner of bytes that
// nobody has had yet.
const none = -1

// Plan checks that a plan is right by itself. A nil result is the proof. At most 100
// violations of a rule and device are listed. Pairs of slots are judged only if every
// slot of the device is right by itself.
//
// If progress is not nil, it is called now and then with the number of slots done and of
// all slots. The work is O(n log n) in the slots and waits.
func Plan(p *planfile.Plan, progress func(done, total int64)) []Violation {
	var r results
	var done, total int64
	for i := range p.Devices {
		total += int64(len(p.Devices[i].Slots))
	}
	r.devices(p)
	for i := range p.Devices {
		d := &p.Devices[i]
		j := &judge{d: d, results: &r}
		if j.records() {
			j.reuses(func(slots int) {
				if progress != nil {
					progress(done+int64(slots), total)
				}
			})
			j.makespan()
			if d.Mode == planfile.ModePeriodic {
				j.phaseLoads()
				j.strays()
			} else {
				j.loads()
			}
		}
		done += int64(len(d.Slots))
		if progress != nil {
			progress(done, total)
		}
	}
	return r.list
}

// results collects violations.
type results struct {
	list  []Violation
	seen  map[ruleOfDevice]int
	found int // including those that are not listed
}

type ruleOfDevice struct {
	rule   string
	device uint32
}

func (r *results) add(rule string, device uint32, first, second int, format string, args ...any) {
	r.found++
	key := ruleOfDevice{rule, device}
	if r.seen == nil {
		r.seen = map[ruleOfDevice]int{}
	}
	if r.seen[key]++; r.seen[key] > limit {
		return
	}
	r.list = append(r.list, Violation{rule, device, first, second,
		fmt.Sprintf("device %d: %s: %s", device, rule, fmt.Sprintf(format, args...))})
}

func (r *results) devices(p *planfile.Plan) {
	if len(p.Devices) == 0 {
		r.list = append(r.list, Violation{RuleDevices, 0, none, none, "devices: the plan has none"})
	}
	for i := 1; i < len(p.Devices); i++ {
		if a, b := p.Devices[i-1].Ordinal, p.Devices[i].Ordinal; b <= a {
			r.add(RuleDevices, b, none, none, "listed after device %d", a)
		}
	}
}

// judge checks one device.
type judge struct {
	d      *planfile.Device
	stages []stage // the phases, set by divide
	// By slot, set by records: the ends of its hold on its place, which are those of its own
	// live range but for a holder. keptEnds are of the kind that the plan is made for.
	keptEnds, keptCompleted []uint64
	*results
}

func (j *judge) violated(rule string, first, second int, format string, args ...any) {
	j.add(rule, j.d.Ordinal, first, second, format, args...)
}

// slot describes slot i for messages.
func (j *judge) slot(i int) string {
	s, of := &j.d.Slots[i], ""
	if j.d.Mode == planfile.ModePeriodic {
		of = " of " + j.stageOf(i).name
	}
	return fmt.Sprintf("slot %d%s (live [%d, %d), %d B at offset %d, stream %#x)",
		i, of, s.Start, j.keptEnds[i], s.Size, s.Offset, j.d.Streams[s.Stream])
}

// needed is the number of bytes that a request counts with: a whole number of units, at
// least one.
func needed(requested uint64) uint64 {
	return max(unit, (requested+unit-1)/unit*unit)
}

// makespan checks that the arena ends with its last slot, and that the makespan of each
// phase is the end of its slots, the residents and, in an interlude, the cells.
func (j *judge) makespan() {
	top, residents := uint64(0), uint64(0)
	for i := range j.d.Slots {
		s := &j.d.Slots[i]
		top = max(top, s.Offset+s.Size)
		if s.Flags&planfile.SlotResident != 0 {
			residents = max(residents, s.Offset+s.Size)
		}
	}
	cells := uint64(0)
	for _, i := range j.keptCells() {
		cells = max(cells, j.d.Slots[i].Offset+j.d.Slots[i].Size)
	}
	for p := range j.d.Phases {
		used := residents
		if j.stages[p].interlude {
			used = max(used, cells)
		}
		for _, s := range j.d.Slots[j.stages[p].first:j.stages[p].end] {
			used = max(used, s.Offset+s.Size)
		}
		if m := j.d.Phases[p].Makespan; m != used {
			j.violated(RuleMakespan, none, none, "the slots of %s end at %d B, its makespan is %d B", j.stages[p].name, used, m)
		}
	}
	if top != j.d.ArenaBytes {
		j.violated(RuleMakespan, none, none, "the slots end at %d B, the arena at %d B", top, j.d.ArenaBytes)
	}
}

// inside says whether offset + size is at most arena, without overflow.
func inside(offset, size, arena uint64) bool {
	end, carry := bits.Add64(offset, size, 0)
	return carry == 0 && end <= arena
}
