package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// pyDict, pyList and pyTuple are Python objects. Two equal pointers are one object. A
// dict's items are key, value, key, value ….
type (
	pyDict  struct{ items []any }
	pyList  struct{ items []any }
	pyTuple struct{ items []any }
	pyNone  struct{} // None in places in which nil means no value
	pyHuge  struct{} // 2^64 - 1
)

func newDict(items ...any) *pyDict  { return &pyDict{items} }
func newList(items ...any) *pyList  { return &pyList{items} }
func newTuple(items ...any) pyTuple { return pyTuple{items} }

// pickler writes pickles as CPython does: with a memo entry for every object as soon as it
// begins, and items in batches of a thousand. With torchScript it writes them as C++ torch
// does: protocol 2, a memo entry only for strings and for shared objects when they are
// complete, and no batches.
type pickler struct {
	protocol    int
	torchScript bool
	out         bytes.Buffer
	memo        map[any]int
	count       map[any]int // references, for torchScript
}

func (p *pickler) pickle(v any) []byte {
	p.out.Reset()
	p.memo = map[any]int{}
	p.count = map[any]int{}
	p.countAll(v)
	p.out.Write([]byte{0x80, byte(p.protocol)})
	head := p.out.Len()
	p.save(v)
	p.out.WriteByte('.')
	if p.protocol < 4 {
		return bytes.Clone(p.out.Bytes())
	}
	body := bytes.Clone(p.out.Bytes()[head:])
	framed := append([]byte{0x80, byte(p.protocol), 0x95}, make([]byte, 8)...)
	binary.LittleEndian.PutUint64(framed[3:], uint64(len(body)))
	return append(framed, body...)
}

func (p *pickler) countAll(v any) {
	var items []any
	switch o := v.(type) {
	case *pyDict:
		items = o.items
	case *pyList:
		items = o.items
	case pyTuple:
		for _, e := range o.items {
			p.countAll(e)
		}
		return
	default:
		return
	}
	if p.count[v]++; p.count[v] == 1 {
		for _, e := range items {
			p.countAll(e)
		}
	}
}

func (p *pickler) save(v any) {
	switch o := v.(type) {
	case nil, pyNone:
		p.out.WriteByte('N')
	case pyHuge:
		p.out.WriteString("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00")
	case bool:
		p.out.WriteByte(map[bool]byte{true: 0x88, false: 0x89}[o])
	case int:
		p.integer(int64(o))
	case int64:
		p.integer(o)
	case uint64:
		p.integer(int64(o))
	case float64:
		p.out.WriteByte('G')
		p.out.Write(binary.BigEndian.AppendUint64(nil, math.Float64bits(o)))
	case string:
		p.object(o, func() { p.text(o) }, nil)
	case *pyList:
		p.object(o, func() { p.out.WriteByte(']') }, func() { p.batches(o.items, 1, 'a', 'e') })
	case *pyDict:
		p.object(o, func() { p.out.WriteByte('}') }, func() { p.batches(o.items, 2, 's', 'u') })
	case pyTuple:
		p.tuple(o.items)
	default:
		panic(fmt.Sprintf("no pickle of a %T", v))
	}
}

// object saves an object that may be referred to again: its opcode, its memo entry and
// its content, or only a reference if it is in the memo.
func (p *pickler) object(o any, open, fill func()) {
	if i, ok := p.memo[o]; ok {
		p.reference(i)
		return
	}
	_, text := o.(string)
	open()
	if p.torchScript && fill != nil {
		fill()
	}
	if !p.torchScript || text || p.count[o] > 1 {
		p.memoize(o)
	}
	if !p.torchScript && fill != nil {
		fill()
	}
}

func (p *pickler) memoize(o any) {
	i := len(p.memo)
	p.memo[o] = i
	switch {
	case p.protocol >= 4:
		p.out.WriteByte(0x94)
	case i < 256:
		p.out.Write([]byte{'q', byte(i)})
	default:
		p.out.WriteByte('r')
		p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(i)))
	}
}

func (p *pickler) reference(i int) {
	if i < 256 {
		p.out.Write([]byte{'h', byte(i)})
		return
	}
	p.out.WriteByte('j')
	p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(i)))
}

func (p *pickler) integer(i int64) {
	switch {
	case i >= 0 && i < 1<<8:
		p.out.Write([]byte{'K', byte(i)})
	case i >= 0 && i < 1<<16:
		p.out.WriteByte('M')
		p.out.Write(binary.LittleEndian.AppendUint16(nil, uint16(i)))
	case i >= math.MinInt32 && i <= math.MaxInt32:
		p.out.WriteByte('J')
		p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(i)))
	default:
		raw := binary.LittleEndian.AppendUint64(nil, uint64(i))
		for !p.torchScript && len(raw) > 1 && raw[len(raw)-1] == 0 && raw[len(raw)-2] < 0x80 {
			raw = raw[:len(raw)-1]
		}
		p.out.Write([]byte{0x8a, byte(len(raw))})
		p.out.Write(raw)
	}
}

func (p *pickler) text(s string) {
	if p.protocol >= 4 && len(s) < 256 {
		p.out.Write([]byte{0x8c, byte(len(s))})
	} else {
		p.out.WriteByte('X')
		p.out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	}
	p.out.WriteString(s)
}

func (p *pickler) tuple(items []any) {
	if len(items) > 3 {
		p.out.WriteByte('(')
	}
	for _, e := range items {
		p.save(e)
	}
	p.out.WriteByte([]byte{')', 0x85, 0x86, 0x87, 't'}[min(len(items), 4)])
}

// batches adds items to the container on the stack.
func (p *pickler) batches(items []any, width int, one, many byte) {
	batch := 1000 * width
	if p.torchScript {
		batch = max(len(items), 1)
	}
	for ; len(items) > 0; items = items[min(batch, len(items)):] {
		now := items[:min(batch, len(items))]
		single := len(now) == width && !p.torchScript
		if !single {
			p.out.WriteByte('(')
		}
		for _, e := range now {
			p.save(e)
		}
		p.out.WriteByte(map[bool]byte{true: one, false: many}[single])
	}
}
