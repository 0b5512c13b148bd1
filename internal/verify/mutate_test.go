package verify

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/trace"
)

// leaf is a number somewhere in a device.
type leaf struct {
	path  string
	value reflect.Value
}

// leaves are all numbers of a device.
func leaves(path string, v reflect.Value) (all []leaf) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			all = append(all, leaves(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			all = append(all, leaves(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
	default:
		all = append(all, leaf{path, v})
	}
	return all
}

// change adds or subtracts a number, or flips a bit.
func (l leaf) change(r *rand.Rand) {
	bits := l.value.Type().Bits()
	v := uint64(0)
	if l.value.CanUint() {
		v = l.value.Uint()
	} else {
		v = uint64(l.value.Int())
	}
	switch r.IntN(4) {
	case 0:
		v++
	case 1:
		v--
	case 2:
		v += 512
	default:
		v ^= 1 << r.IntN(min(bits, 1+r.IntN(64)))
	}
	v &= ^uint64(0) >> (64 - bits)
	if l.value.CanUint() {
		l.value.SetUint(v)
	} else {
		l.value.SetInt(int64(v))
	}
}

// caught says whether a plan is refused by the format, by Plan or by AgainstTrace. None
// of them may panic, whatever the plan.
func caught(p *planfile.Plan, t *trace.Trace) bool {
	_, err := planfile.Encode(p)
	alone, beside := Plan(p, nil), AgainstTrace(p, t)
	return err != nil || len(alone) > 0 || len(beside) > 0
}

// harmless says whether a plan is still right after a change of one number: the number is
// not proven at all, or a naive check of it finds nothing wrong.
func harmless(path string, d *planfile.Device, t *trace.Trace) bool {
	name := path[strings.LastIndex(path, ".")+1:]
	i := -1
	fmt.Sscanf(path, ".Slots[%d]", &i)
	switch name {
	case "Rank", "Iterations", "Advice":
		return true
	case "Kind": // without cells an interlude is a body
		return strings.HasPrefix(path, ".Phases") && !slices.ContainsFunc(d.Slots, func(s planfile.Slot) bool { return s.Flags&planfile.SlotLeaving != 0 })
	case "Offset", "Size", "Alignment", "ArenaBytes", "Cell": // Cell: another holder in the same place
		return naiveRight(d, t)
	case "BoundAt":
		var p int
		fmt.Sscanf(path, ".Phases[%d]", &p)
		return naiveLoadIn(d, p, d.Phases[p].BoundAt) == d.Phases[p].LowerBound
	case "FirstEvent", "SteadyEnd":
		return true // where an iteration begins is not proven
	case "End":
		return !pending(d)
	case "CompletedEnd":
		phase := phaseOf(d, i)
		return len(d.Phases) > 2 && d.Slots[i].CompletedEnd >= d.Phases[phase].Length && d.Slots[i].CompletedEnd <= 2*d.Phases[phase].Length || d.Slots[i].Occurrences == 0
	case "RequestedEnd":
		return d.Slots[i].Occurrences == 0
	}
	return false
}

func phaseOf(d *planfile.Device, slot int) int {
	return slices.IndexFunc(d.Phases, func(p planfile.Phase) bool { return uint64(slot) < p.FirstSlot+p.SlotCount })
}

// pending says whether the two ends of any slot differ.
func pending(d *planfile.Device) bool {
	return slices.ContainsFunc(d.Slots, func(s planfile.Slot) bool { return s.RequestedEnd != s.CompletedEnd })
}

// naiveRight says whether no two slots overlap, what shares a place fits into it, and
// figures and waits are those of the naive references.
func naiveRight(d *planfile.Device, t *trace.Trace) bool {
	if anyMeet(d) || !naiveShared(d, t) {
		return false
	}
	again := *d
	again.Phases = slices.Clone(d.Phases)
	for p := range again.Phases {
		again.Phases[p].Makespan, again.Phases[p].LowerBound, again.Phases[p].BoundAt = 0, 0, 0
	}
	again.ArenaBytes, again.Certificate = 0, planfile.Certificate{}
	naiveFigures(&again)
	if !reflect.DeepEqual(again.Phases, d.Phases) || again.ArenaBytes != d.ArenaBytes || !reflect.DeepEqual(again.Certificate, d.Certificate) {
		return false
	}
	return slices.Equal(naivePeriodicWaits(d), d.Waits)
}

// naiveShared says whether every slot that shares its place has that of its holder, and
// whether what shared places held in the recording fits into them.
func naiveShared(d *planfile.Device, t *trace.Trace) bool {
	held := naiveHeld(d, t)
	for i := range d.Slots {
		s, h := &d.Slots[i], &d.Slots[holderOf(d, i)]
		if s.Offset != h.Offset || s.Size != h.Size || s.Stream != h.Stream || len(members(d, i)) > 1 && held[i] > s.Size {
			return false
		}
	}
	return true
}

// anyMeet says whether two slots share bytes at some time of a phase. The slots of a cell
// follow one another, so they do not.
func anyMeet(d *planfile.Device) bool {
	for i := range d.Slots {
		for k := range i {
			a, b := &d.Slots[i], &d.Slots[k]
			if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && barsMeet(barsOf(d, i), barsOf(d, k)) {
				return true
			}
		}
	}
	return false
}

// TestMutations changes one number of a right plan. A plan that is wrong then is caught.
func TestMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	changed, let := map[string]int{}, map[string]int{}
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	for range rounds {
		p, tr := randomPeriodic(r)
		data, err := planfile.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		for range 25 {
			bad, err := planfile.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			d := &bad.Devices[0]
			l := pick(r, d)
			before := fmt.Sprint(l.value)
			l.change(r)
			name := l.path[strings.LastIndex(l.path, ".")+1:]
			changed[strings.TrimRight(name, "[]0123456789")]++
			if caught(bad, tr) {
				continue
			}
			if !harmless(l.path, d, tr) {
				t.Fatalf("%s changed from %s to %v is not caught\n%+v", l.path, before, l.value, d)
			}
			let[name]++
		}
	}
	t.Log(changed, let)
	for _, name := range []string{"Start", "Cell", "Flags", "Least", "Earlier", "Kind", "LowerBound", "Present", "Phase", "StrayBytes"} {
		if changed[name] == 0 {
			t.Errorf("no %s was changed", name)
		}
	}
}

// pick takes a number at random. Each kind of record is equally likely.
func pick(r *rand.Rand, d *planfile.Device) leaf {
	v := reflect.ValueOf(d).Elem()
	for {
		var records []leaf
		switch r.IntN(5) {
		case 0:
			records = leaves("", v)
			records = slices.DeleteFunc(records, func(l leaf) bool {
				return strings.Contains(l.path, "Fingerprint") || strings.Contains(l.path, "Slots[")
			})
		case 1:
			records = leaves(".Waits", v.FieldByName("Waits"))
		case 2:
			records = leaves(".Phases", v.FieldByName("Phases"))
		case 3:
			records = leaves(".Passes", v.FieldByName("Passes"))
		default:
			records = leaves(".Slots", v.FieldByName("Slots"))
		}
		if len(records) > 0 {
			return records[r.IntN(len(records))]
		}
	}
}
