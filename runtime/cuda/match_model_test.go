package cuda

import (
	"slices"

	"github.com/stplan/stplan/internal/planfile"
)

// This is the matcher as docs/runtime.md describes it, written to be read: one list of
// steps, one of hypotheses, and no lookup tables. match_test.go compares it with the
// runtime, request by request.

const nowhere = -1

type modelStep struct {
	least, most            uint64
	offset                 int64
	stream                 int
	part, end              int // end: the step before which it is freed; nowhere if it lives beyond its part
	optional, turns, stays bool
	loose                  bool // of a prologue, if most sizes of the bodies vary
}

func (s *modelStep) fits(n uint64) bool { return n >= s.least && n <= s.most }
func (s *modelStep) varies() bool       { return s.least < s.most }
func (s *modelStep) mayFit(n uint64) bool {
	return (s.varies() || s.loose) && n >= s.least/4 && n/4 <= s.most
}

// ratio is how much larger n is than what was recorded, in 65536ths; 0 if it cannot be, or if
// the size varied in the recording.
func (s *modelStep) ratio(n uint64) uint64 {
	if s.stays || s.varies() || s.loose || s.most < 512 || n < s.most/4 || n/4 > s.most {
		return 0
	}
	return uint64(float64(n)/float64(s.most)*65536 + 0.5)
}

// inRatio says whether n is about that much larger than what was recorded, or the square of it.
func (s *modelStep) inRatio(ratio, n uint64) bool {
	near := func(a, b uint64) bool { return max(a, b)-min(a, b) <= b/64 }
	of := s.ratio(n)
	return ratio != 0 && of != 0 && (near(of, ratio) || near(of, ratio*ratio/65536))
}

// scale is where n lies from the least (0) to the most (1).
func (s *modelStep) scale(n uint64) (float64, bool) {
	if !s.varies() {
		return 0, false
	}
	return (float64(n) - float64(s.least)) / float64(s.most-s.least), true
}

type modelGuess struct {
	at, fitted int
	scale      float64
	scaled     bool
	ratio      uint64 // of sizes to what was recorded, 0 if they are that
	begins     bool   // it was raised at the beginning of a body
	fork, body bool   // the pointer took another step that fitted as well; here another body begins
}

type doubtKind int

const (
	noDoubt doubtKind = iota
	tooEarly
	otherScale
)

type matchModel struct {
	steps    []modelStep
	first    []int // of each part, and the end of the last
	follower []int // of each part: the part that comes next most often, nowhere in mode recorded
	streams  map[int]uint64

	at, pass, fitted, missed int
	lost                     int
	adrift                   bool
	doubted                  doubtKind
	doubtedSince             int
	doubtedScale             float64
	begun                    bool // another body has begun than the pointer's, or than where that went
	behind, behindSince      int
	scale                    float64
	scaled                   bool
	oneLength, inARow        int
	ratio, ratioBefore       uint64
	guesses                  []modelGuess
	recent                   []uint64

	trust int
	due   map[int]modelDue // by step
	freed []int            // ends of what was freed since the last request
}

type modelDue struct{ pass, blocks int }

func newMatchModel(d *planfile.Device) *matchModel {
	m := &matchModel{streams: map[int]uint64{}, due: map[int]modelDue{}, behind: nowhere, trust: 1024, oneLength: 1024}
	phases := d.Phases
	if d.Mode == planfile.ModeRecorded {
		phases = []planfile.Phase{{Kind: planfile.PhasePrologue, Occurrences: 1, SlotCount: uint64(len(d.Slots))}}
		m.follower = []int{nowhere}
	}
	for part, p := range phases {
		m.first = append(m.first, len(m.steps))
		m.addPart(d.Slots[p.FirstSlot:p.FirstSlot+p.SlotCount], part, p.Occurrences)
	}
	m.first = append(m.first, len(m.steps))
	varying := 0
	for i := m.first[1]; i < len(m.steps); i++ {
		if m.steps[i].varies() {
			varying++
		}
	}
	for i := 0; i < m.first[1] && d.Mode == planfile.ModePeriodic; i++ {
		m.steps[i].loose = !m.steps[i].stays && varying*2 >= len(m.steps)-m.first[1]
	}
	for part := range phases {
		if d.Mode == planfile.ModeRecorded {
			break
		}
		times := make([]int, len(phases))
		before := 0
		for _, pass := range d.Passes {
			if before == part {
				times[pass.Phase]++
			}
			before = int(pass.Phase)
		}
		best := 1
		for p := 2; p < len(phases); p++ {
			if times[p] > times[best] {
				best = p
			}
		}
		m.follower = append(m.follower, best)
	}
	return m
}

func (m *matchModel) addPart(slots []planfile.Slot, part int, occurrences uint32) {
	first := len(m.steps)
	last := 0.0
	for _, s := range slots {
		step := modelStep{
			least: s.Least, most: s.Requested, offset: int64(s.Offset), stream: int(s.Stream), part: part,
			optional: s.Occurrences < occurrences, stays: s.Flags&planfile.SlotResident != 0,
		}
		if step.varies() {
			ratio := float64(step.most) / float64(step.least+1)
			step.turns = ratio < last*0.99 || last < ratio*0.99
			last = ratio
		}
		step.end = first + int(s.RequestedEnd)
		if part == 0 { // its times are events
			step.end = first
			for _, other := range slots {
				if other.Start < s.RequestedEnd {
					step.end++
				}
			}
		}
		if s.Flags != 0 {
			step.end = nowhere
		}
		m.steps = append(m.steps, step)
	}
}

func (m *matchModel) next(at int) int {
	if at == nowhere {
		return nowhere
	}
	part := m.steps[at].part
	switch {
	case at+1 < m.first[part+1]:
		return at + 1
	case m.follower[part] == nowhere:
		return nowhere
	}
	return m.first[m.follower[part]]
}

func (m *matchModel) part() int { return m.steps[m.at].part }

func (m *matchModel) fits(at int, n, stream uint64) bool {
	if at == nowhere || !m.onStream(at, stream) {
		return false
	}
	s := &m.steps[at]
	return s.fits(n) || s.inRatio(m.ratio, n) || s.inRatio(m.ratioBefore, n)
}

func (m *matchModel) onStream(at int, stream uint64) bool {
	bound, known := m.streams[m.steps[at].stream]
	return !known || bound == stream
}

func (m *matchModel) agree(a float64, aOK bool, b float64, bOK bool) bool {
	return !aOK || !bOK || abs(int64(a*65536)-int64(b*65536)) <= 1024
}

func abs(n int64) int64 { return max(n, -n) }

func (m *matchModel) inScale(at int, n uint64) bool {
	scale, ok := m.steps[at].scale(n)
	return !m.lengthDecides() || m.agree(scale, ok, m.scale, m.scaled)
}

func (m *matchModel) lengthDecides() bool { return m.oneLength >= 1024/10*9 }
func (m *matchModel) trusted() bool       { return m.trust >= 768 }

func (m *matchModel) dueAt(at int) int {
	if d := m.due[at]; d.pass == m.pass {
		return d.blocks
	}
	return 0
}

// firm says that no step within three of the pointer is optional.
func (m *matchModel) firm() bool {
	for i := max(m.first[m.part()], m.at-3); i <= m.at+3 && i < m.first[m.part()+1]; i++ {
		if m.steps[i].optional {
			return false
		}
	}
	return true
}

func (m *matchModel) lifetime(at int) int {
	if m.steps[at].end == nowhere {
		return 1 << 62
	}
	return m.steps[at].end - at
}

// placed is told that a step's request was served at its place, free that it is freed.
func (m *matchModel) placed(step int) {
	if end := m.steps[step].end; end != nowhere {
		m.due[end] = modelDue{m.pass, m.dueAt(end) + 1}
	}
}

func (m *matchModel) free(step int) {
	if end := m.steps[step].end; end != nowhere && m.at != nowhere {
		m.freed = append(m.freed, end)
		if n := m.dueAt(end); n > 0 {
			m.due[end] = modelDue{m.pass, n - 1}
		}
	}
}

// inTheWay is a step that needs bytes of [offset, offset+size) while the given step lives,
// or that step itself if the plan does not know how long it lives; nowhere if there is none.
func (m *matchModel) inTheWay(step int, offset, size int64) int {
	if m.steps[step].end == nowhere {
		return step
	}
	for k := step + 1; k < m.steps[step].end; k++ {
		if s := &m.steps[k]; s.offset < offset+size && offset < s.offset+int64(up(s.most)) {
			return k
		}
	}
	return nowhere
}

// ahead is the last step, one or two ahead, that a free belongs to. It also updates the
// trust in frees.
func (m *matchModel) ahead() int {
	ahead, right := nowhere, 0
	for _, end := range m.freed {
		if end == m.at {
			right++
		}
		if end > m.at && end <= m.at+2 && end > ahead {
			ahead = end
		}
	}
	if all := len(m.freed) + m.dueAt(m.at); !m.adrift && all > 0 {
		m.trust += (right*1024/all - m.trust) / 32
	}
	m.freed = m.freed[:0]
	return ahead
}

// request matches the next request. The step is nowhere if it is off plan. If unsure, it is
// in the sequence, and not served at its place.
func (m *matchModel) request(n, stream uint64) (step int, unsure bool) {
	m.recent = append(m.recent, n)
	m.advance(n)
	ahead := m.ahead()
	was := m.at
	found, unsure, stay := m.find(ahead, n, stream)
	switch {
	case found == nowhere && m.doubted != noDoubt:
		return nowhere, false
	case found == nowhere:
		if found = m.drift(n); found == nowhere {
			return nowhere, false
		}
	}
	if m.begun {
		m.pass++
	}
	m.take(found, n, stream)
	if stay {
		return found, unsure
	}
	m.at = m.next(found)
	if found+1 == m.first[m.steps[found].part+1] {
		m.pass++
	}
	if found == was && m.fitted >= 64 {
		m.guesses, m.missed = nil, 0
	}
	return found, unsure
}

func (m *matchModel) find(ahead int, n, stream uint64) (at int, unsure, stay bool) {
	before := m.doubted
	m.doubted, m.begun = noDoubt, false
	again := len(m.recent) > 1 && m.recent[len(m.recent)-2] == n
	fit := m.fitsOrStretched(m.at, n, stream)
	early := fit && before == noDoubt && m.trusted() && m.dueAt(m.at) > 0
	if ahead != nowhere && ahead < m.first[m.part()+1] && m.trusted() && m.fits(ahead, n, stream) && (!fit || m.firm()) {
		m.behind = nowhere
		return ahead, false, false
	}
	if early && again && m.firm() {
		m.doubted = tooEarly
		return nowhere, false, false
	}
	if early || !fit || !m.inScale(m.at, n) && !m.inNewScale(m.at, n) && !m.steps[m.at].turns {
		if at = m.fork(); at != nowhere {
			return at, false, false
		}
	}
	if at = m.otherBody(n, stream); at != nowhere && !fit && !m.adrift {
		m.noteBodies(at, n, stream)
		m.begun = m.at != m.first[m.part()]
		return at, false, false
	}
	after := m.next(m.at)
	if before == otherScale && after != nowhere && (m.steps[after].fits(n) || m.steps[after].mayFit(n)) {
		if scale, ok := m.steps[after].scale(n); ok && m.agree(scale, true, m.doubtedScale, true) {
			m.scale, m.scaled = m.doubtedScale, true
			return after, false, false
		}
	}
	if !fit {
		if at = m.pastOptional(n, stream); at != nowhere && !m.adrift {
			return at, false, false
		}
		if m.behind != nowhere && len(m.recent)-m.behindSince <= 2 && m.fits(m.behind, n, stream) {
			at, m.behind = m.behind, nowhere
			// It changed places with the one before the pointer.
			return at, m.at == 0 || m.lifetime(at) < m.lifetime(m.at-1), true
		}
		if !m.adrift && !again && m.fits(after, n, stream) && m.inScale(after, n) {
			m.behind, m.behindSince = m.at, len(m.recent)
			return after, m.lifetime(after) < m.lifetime(m.at), false
		}
		if m.adrift || !m.steps[m.at].mayFit(n) || !m.onStream(m.at, stream) {
			return nowhere, false, false
		}
	}
	if !m.inScale(m.at, n) && !m.inNewScale(m.at, n) && !m.steps[m.at].turns && before == noDoubt {
		m.doubted = otherScale
		m.doubtedScale, _ = m.steps[m.at].scale(n)
		m.doubtedSince = len(m.recent)
		return nowhere, false, false
	}
	if fit {
		return m.choose(n, stream), false, false
	}
	return m.at, false, false
}

// inNewScale says whether a request has the scale of one of the last eight that was held for it.
func (m *matchModel) inNewScale(at int, n uint64) bool {
	scale, ok := m.steps[at].scale(n)
	return ok && m.doubtedSince > 0 && len(m.recent)-m.doubtedSince <= 8 && m.agree(scale, true, m.doubtedScale, true)
}

// fitsOrStretched says whether a request fits a step by its size, or by its scale.
func (m *matchModel) fitsOrStretched(at int, n, stream uint64) bool {
	if m.fits(at, n, stream) {
		return true
	}
	if at == nowhere || !m.lengthDecides() && m.inARow < 8 || !m.scaled || !m.steps[at].mayFit(n) {
		return false
	}
	scale, ok := m.steps[at].scale(n)
	return ok && m.agree(scale, true, m.scale, true) && m.onStream(at, stream)
}

// beyond is the first step from the pointer on that is not optional.
func (m *matchModel) beyond(n, stream uint64) int {
	if !m.steps[m.at].optional {
		return nowhere
	}
	at := m.at
	for at+1 < m.first[m.part()+1] && m.steps[at].optional {
		at++
	}
	if m.steps[at].optional {
		at = m.next(at)
	}
	if !m.fitsOrStretched(at, n, stream) {
		return nowhere
	}
	return at
}

func (m *matchModel) choose(n, stream uint64) int {
	at, other := m.at, m.beyond(n, stream)
	if m.begins() {
		m.noteBodies(m.at, n, stream)
	}
	if other == nowhere {
		return at
	}
	if m.lifetime(other) > m.lifetime(at) {
		at, other = other, at
	}
	m.fitted = 0
	if i := m.suppose(other, n); i >= 0 {
		m.guesses[i].fork, m.guesses[i].body = true, false
	}
	return at
}

// begins says whether the pointer is where a body begins or may begin.
func (m *matchModel) begins() bool {
	return m.part() > 0 && (m.at == m.first[m.part()] || m.at == m.stop(m.part()))
}

// stop is the step of a body where the longest shorter one ends that it begins with.
func (m *matchModel) stop(part int) int {
	most := 0
	for other := 1; other < len(m.follower); other++ {
		length := m.first[other+1] - m.first[other]
		if length >= m.first[part+1]-m.first[part] || part > 8 || other > 8 {
			continue
		}
		alike := 0
		for alike < length {
			a, b := m.steps[m.first[part]+alike], m.steps[m.first[other]+alike]
			same := a.least == b.least && a.most == b.most
			near := (a.least < a.most || b.least < b.most) && a.most >= b.least/4 && b.most >= a.least/4
			if a.stream != b.stream || !same && !near {
				break
			}
			alike++
		}
		if alike == length {
			most = max(most, length)
		}
	}
	if most == 0 {
		return nowhere
	}
	return m.first[part] + most
}

// openings are the steps where the run may be instead of where the pointer begins.
func (m *matchModel) openings() []int {
	var steps []int
	for part := 1; part < len(m.follower); part++ {
		if stop := m.stop(part); stop != nowhere && m.at == m.first[m.part()] {
			steps = append(steps, stop)
		}
		steps = append(steps, m.first[part])
	}
	return steps
}

// otherBody is the first opening that fits, if the pointer is at one. If the request may be the pointer's, it has to be
// of a size that was recorded there.
func (m *matchModel) otherBody(n, stream uint64) int {
	if !m.begins() {
		return nowhere
	}
	here := m.steps[m.at].mayFit(n) && m.onStream(m.at, stream)
	for _, step := range m.openings() {
		if m.fits(step, n, stream) && (!here || m.steps[step].fits(n)) {
			return step
		}
	}
	return nowhere
}

// noteBodies remembers the openings that fit, other than a step.
func (m *matchModel) noteBodies(at int, n, stream uint64) {
	for _, step := range m.openings() {
		if step != at && m.fits(step, n, stream) {
			m.fitted = 0
			if i := m.suppose(step, n); i >= 0 {
				m.guesses[i].fork, m.guesses[i].body = true, true
			}
		}
	}
}

func (m *matchModel) fork() int {
	at, most := nowhere, 1
	for _, g := range m.guesses {
		if g.fork && g.fitted > most && (g.body || m.steps[g.at].part == m.part()) && m.dueAt(g.at) == 0 {
			at, most, m.begun = g.at, g.fitted, g.body
		}
	}
	return at
}

func (m *matchModel) pastOptional(n, stream uint64) int {
	at := m.at
	for i := 0; i < 64; i++ {
		if i > 0 && m.fitsOrStretched(at, n, stream) {
			return at
		}
		if !m.steps[at].optional {
			return nowhere
		}
		if at = m.next(at); at == nowhere {
			return nowhere
		}
	}
	return m.beyond(n, stream)
}

func (m *matchModel) take(at int, n, stream uint64) {
	if scale, ok := m.steps[at].scale(n); ok {
		if m.scaled {
			right := 0
			if m.agree(scale, true, m.scale, true) {
				right = 1024
			}
			m.oneLength += (right - m.oneLength) / 32
		}
		if !m.agree(scale, true, m.scale, m.scaled) {
			m.inARow = 0
		}
		m.inARow++
		m.scale, m.scaled = scale, true
	}
	m.streams[m.steps[at].stream] = stream
	m.adrift = false
	m.lost = 0
	m.fitted++
}

func (m *matchModel) drift(n uint64) int {
	if !m.adrift {
		for i := range m.guesses {
			m.guesses[i].fitted = max(1, m.guesses[i].fitted-m.fitted)
		}
	}
	m.adrift = true
	m.fitted = 0
	m.missed++
	best := -1
	for i, g := range m.guesses {
		needed := 3
		if m.distance(g.at) > 512 {
			needed = 16
			if g.begins && m.part() > 0 {
				needed = 8
			}
		}
		if g.fitted < needed {
			continue
		}
		if best < 0 || g.fitted > m.guesses[best].fitted ||
			g.fitted == m.guesses[best].fitted && m.distance(g.at) < m.distance(m.guesses[best].at) {
			best = i
		}
	}
	if best >= 0 {
		if ratio := m.guesses[best].ratio; ratio != 0 && ratio != m.ratio {
			m.ratio, m.ratioBefore = ratio, m.ratio
		}
		return m.guesses[best].at
	}
	// Every one of 32, then every second up to 64, every fourth up to 128 and so on. The others may begin a body.
	every := 1
	for every < 64 && m.lost >= 32*every {
		every *= 2
	}
	if m.lost%every == 0 {
		m.raise(n)
	} else {
		m.raiseStarts(n)
	}
	m.lost++
	return nowhere
}

func (m *matchModel) distance(at int) int {
	if at >= m.at {
		return at - m.at
	}
	d := 8 * (m.at - at)
	// Or beyond the seam.
	end := m.first[m.part()+1]
	if seam := m.next(end - 1); seam != nowhere && at >= seam && at < m.first[m.steps[seam].part+1] {
		d = min(d, end-m.at+at-seam)
	}
	return d
}

func (m *matchModel) suppose(at int, n uint64) int {
	if i := slices.IndexFunc(m.guesses, func(g modelGuess) bool { return g.at == at }); i >= 0 {
		return i
	}
	if len(m.guesses) == 32 {
		return -1
	}
	g := modelGuess{at: at, fitted: 1}
	g.scale, g.scaled = m.steps[at].scale(n)
	m.guesses = append(m.guesses, g)
	return len(m.guesses) - 1
}

func (m *matchModel) advance(n uint64) {
	var kept []modelGuess
	for _, g := range m.guesses {
		g.at = m.next(g.at)
		if g.at == nowhere || g.at == m.at {
			continue
		}
		s := &m.steps[g.at]
		scale, ok := s.scale(n)
		explained := s.fits(n)
		if g.ratio != 0 {
			explained = explained || s.inRatio(g.ratio, n)
		} else if m.lengthDecides() {
			explained = (explained || ok && g.scaled && s.mayFit(n)) && m.agree(scale, ok, g.scale, g.scaled)
		}
		if !explained {
			continue
		}
		if ok {
			g.scale, g.scaled = scale, true
		}
		g.fitted++
		kept = append(kept, g)
	}
	m.guesses = kept
}

func (m *matchModel) raise(n uint64) {
	at := m.at
	if ratio := m.steps[at].ratio(n); ratio != 0 {
		if i := m.suppose(at, n); i >= 0 {
			m.guesses[i].ratio = ratio
		}
	}
	if n <= 512 && m.steps[at].most <= 512 {
		m.suppose(at, n)
	}
	m.raiseStarts(n)
	for i := 0; i < 256 && at != nowhere && len(m.guesses) < 24; i++ {
		if i > 0 && m.steps[at].fits(n) {
			m.suppose(at, n)
		}
		at = m.next(at)
	}
	for at = m.at - 1; at >= m.first[m.part()] && at >= m.at-32; at-- {
		if m.steps[at].fits(n) {
			m.suppose(at, n)
		}
	}
	from := 0
	if m.part() > 0 && m.missed < 256 {
		from = m.first[1]
	}
	at = max(from, m.at)
	m.raiseRuns(at-1, from-1, -1, n)
	m.raiseRuns(at, len(m.steps), 1, n)
	m.raiseRuns(from, len(m.steps), 1, n)
}

// raiseStarts raises the first step of each body.
func (m *matchModel) raiseStarts(n uint64) {
	for part := 1; part < len(m.follower); part++ {
		if m.steps[m.first[part]].fits(n) {
			if i := m.suppose(m.first[part], n); i >= 0 {
				m.guesses[i].begins = true
			}
		}
	}
}

// raiseRuns raises the first four places from a step on, up to another one, at which the last four
// requests were recorded in a row, with constant sizes. by says in which direction.
func (m *matchModel) raiseRuns(from, to, by int, n uint64) {
	if len(m.recent) < 4 {
		return
	}
	last := m.recent[len(m.recent)-4:]
	found := 0
	for at := from; at != to && found < 4; at += by {
		if at-3 < m.first[m.steps[at].part] {
			continue
		}
		same := true
		for k, size := range last {
			s := &m.steps[at-3+k]
			same = same && !s.varies() && s.most == size
		}
		if same {
			m.suppose(at, n)
			found++
		}
	}
}
