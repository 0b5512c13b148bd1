package pickle

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
)

// Folder replaces dicts that it knows by numbers.
type Folder interface {
	// FoldDict is called with the first items that an empty dict gets, as key, value,
	// key, value …. Every pickler writes a dict of up to 1000 items at once, so these
	// are all items of such a dict. FoldDict returns a number that replaces the dict from
	// then on, at most MaxFolded, or false to leave the dict as it is. It must not keep
	// items.
	FoldDict(s *Store, items []Value) (number uint64, ok bool)
}

// MaxProtocol is the newest pickle protocol that Read understands.
const MaxProtocol = 5

// Read reads one pickle, which must end where r ends, and returns its value. The known
// strings get the numbers 0, 1, 2 … (Store.StringNumber). room returns how many bytes of
// memory may be in use now; it is asked at least once for every 64 KiB of the pickle. Every
// error is an *Error; it wraps an error of r.
func Read(r io.Reader, known []string, folder Folder, room func() int64) (*Store, Value, error) {
	m := &machine{
		in:     newInput(r),
		store:  newStore(known),
		folder: folder,
		room:   room,
	}
	m.in.filled = m.within
	v, err := m.read()
	if err != nil {
		return nil, 0, err
	}
	m.store.size = m.in.offset()
	return m.store, v, nil
}

type machine struct {
	in     input
	store  *Store
	folder Folder
	room   func() int64 // bytes that all of this may take
	stack  []Value
	floor  int   // length of the stack at the last mark: values below cannot be taken
	marks  []int // the earlier floors
	memo   table[Value]
	filled uint64 // memo entries that are set
	at     int64  // offset of the current opcode
}

// read executes the pickle. The dozen opcodes that make up nearly all of a snapshot are
// executed here: there are ten million of them, and a call would cost more than the work.
// step executes the others. The position is a local variable, and each opcode advances it
// by a constant. If it were read from memory, every opcode would wait for the one before.
func (m *machine) read() (Value, error) {
	if err := m.header(); err != nil {
		return 0, err
	}
	in, s := &m.in, m.store
	pos, end := in.pos, in.end
	for {
		if end-pos < longestOp {
			in.pos = pos
			if err := in.fillOp(); err != nil {
				return 0, err
			}
			pos, end = in.pos, in.end
		}
		b := (*[longestOp]byte)(in.buf[pos:])
		m.at = in.base + int64(pos)
		arg := b[1:]
		var err error
		switch b[0] {
		case opLongBinGet:
			pos += 5
			i := uint64(binary.LittleEndian.Uint32(arg))
			v := m.memo.get(i)
			if v == 0 {
				return 0, m.notStored(i)
			}
			m.push(v)
		case opBinGet:
			pos += 2
			v := m.memo.get(uint64(arg[0]))
			if v == 0 {
				return 0, m.notStored(uint64(arg[0]))
			}
			m.push(v)
		case opMemoize:
			pos++
			err = m.put(m.filled)
		case opBinInt1:
			pos += 2
			m.push(tagged(tagInt, uint64(arg[0])))
		case opBinInt2:
			pos += 3
			m.push(tagged(tagInt, uint64(binary.LittleEndian.Uint16(arg))))
		case opBinInt:
			pos += 5
			m.push(s.int(int64(int32(binary.LittleEndian.Uint32(arg)))))
		case opMark:
			pos++
			m.marks = append(m.marks, m.floor)
			m.floor = len(m.stack)
		case opEmptyDict:
			pos++
			m.push(s.newObject(tagged(tagEmptyDict, 0)))
		case opEmptyList:
			pos++
			m.push(s.newObject(tagged(tagEmptyList, 0)))
		case opSetItems:
			pos++
			if len(m.marks) == 0 {
				return 0, m.noMark()
			}
			from := m.unmark()
			items := m.stack[from:]
			m.stack = m.stack[:from]
			err = m.setItems(items)
		case opLong1:
			n := int(arg[0])
			if n <= 8 && end-pos >= 2+8 {
				pos += 2 + n
				m.push(s.long(binary.LittleEndian.Uint64(in.buf[pos-n:]), n))
				continue
			}
			in.pos = pos + 2
			err = m.long(uint64(n))
			pos, end = in.pos, in.end
		default: // may read on
			in.pos = pos + 1 + int(argument[b[0]])
			switch b[0] {
			case opShortBinUnicode:
				err = m.text(uint64(arg[0]))
			case opStop:
				return m.stop()
			default:
				err = m.step(b[0], arg)
			}
			pos, end = in.pos, in.end
		}
		if err != nil {
			return 0, err
		}
	}
}

// within refuses a pickle whose values take more memory than there is room for.
func (m *machine) within() error {
	if room := m.room(); m.memory() > room {
		return &Error{Offset: m.in.offset(), Problem: fmt.Sprintf("the values up to here take %d B of memory, expected at most %d B for what was read of the file", m.memory(), room)}
	}
	return nil
}

// memory is what the machine and the Store have allocated and not given back, in bytes.
func (m *machine) memory() int64 {
	return m.store.memory() + m.memo.memory() + m.in.held + 8*int64(cap(m.stack)+cap(m.marks))
}

// header checks that the file begins as a pickle does, before any other error.
func (m *machine) header() error {
	if empty, err := m.in.atEnd(); empty || err != nil {
		if err == nil {
			err = &Error{Problem: "the file is empty", Err: io.ErrUnexpectedEOF}
		}
		return err
	}
	if first := m.in.buf[m.in.pos]; first != opProto {
		return m.fail("not a pickle of protocol 2 to %d: expected the byte 0x80, found %s", MaxProtocol, quoteByte(first))
	}
	return nil
}

func (m *machine) fail(format string, args ...any) error {
	return &Error{Offset: m.at, Problem: fmt.Sprintf(format, args...)}
}

func (m *machine) stop() (Value, error) {
	v, err := m.pop()
	if err != nil {
		return 0, err
	}
	if len(m.stack) > 0 || len(m.marks) > 0 {
		return 0, m.fail("the pickle stops with %d values and %d marks left on the stack, expected none", len(m.stack), len(m.marks))
	}
	end, err := m.in.atEnd()
	if err == nil && !end {
		m.at = m.in.offset()
		err = m.fail("more data follows the end of the pickle")
	}
	return v, err
}

// step executes an opcode that read does not.
func (m *machine) step(op byte, arg []byte) error {
	s := m.store
	switch op {
	case opAppends:
		return m.toMark(m.appendItems)
	case opAppend:
		return m.last(1, m.appendItems)
	case opSetItem:
		return m.last(2, m.setItems)
	case opNone:
		m.push(none)
	case opNewTrue:
		m.push(boolean[1])
	case opNewFalse:
		m.push(boolean[0])
	case opBinFloat:
		m.push(s.float(binary.BigEndian.Uint64(arg)))
	case opEmptyTuple:
		m.push(s.tuple(nil))
	case opTuple1:
		return m.last(1, m.makeTuple)
	case opTuple2:
		return m.last(2, m.makeTuple)
	case opTuple3:
		return m.last(3, m.makeTuple)
	case opTuple:
		return m.toMark(m.makeTuple)
	case opLong4:
		return m.long4(int32(binary.LittleEndian.Uint32(arg)))
	case opBinUnicode:
		return m.text(uint64(binary.LittleEndian.Uint32(arg)))
	case opBinUnicode8:
		return m.text(binary.LittleEndian.Uint64(arg))
	case opShortBinBytes:
		return m.opaque(uint64(arg[0]))
	case opBinBytes:
		return m.opaque(uint64(binary.LittleEndian.Uint32(arg)))
	case opBinBytes8, opByteArray8:
		return m.opaque(binary.LittleEndian.Uint64(arg))
	case opEmptySet:
		m.push(other)
	case opAddItems:
		return m.toMark(m.addItems)
	case opFrozenSet:
		return m.toMark(func([]Value) error { m.push(other); return nil })
	case opBinPut:
		return m.put(uint64(arg[0]))
	case opLongBinPut:
		return m.put(uint64(binary.LittleEndian.Uint32(arg)))
	case opGet:
		return m.byLine(m.get)
	case opPut:
		return m.byLine(m.put)
	case opPop:
		return m.drop()
	case opPopMark:
		return m.toMark(func([]Value) error { return nil })
	case opFrame: // only groups bytes for reading
	case opProto:
		return m.protocol(arg[0])
	default:
		return m.refuse(op)
	}
	return nil
}

func (m *machine) protocol(version byte) error {
	if version < 2 || version > MaxProtocol {
		return m.fail("pickle protocol %d: expected 2 to %d", version, MaxProtocol)
	}
	return nil
}

func (m *machine) push(v Value) { m.stack = append(m.stack, v) }

func (m *machine) top() (Value, error) {
	if len(m.stack) <= m.floor {
		return 0, m.noValue()
	}
	return m.stack[len(m.stack)-1], nil
}

func (m *machine) noValue() error {
	return m.fail("the pickle takes a value from an empty stack")
}

func (m *machine) pop() (Value, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

// drop is POP. It removes a mark if there is no value above it.
func (m *machine) drop() error {
	if len(m.marks) > 0 && m.floor == len(m.stack) {
		m.unmark()
		return nil
	}
	_, err := m.pop()
	return err
}

// toMark removes the values above the last mark, and the mark, from the stack, and calls
// use with them. They are valid until the next push.
func (m *machine) toMark(use func([]Value) error) error {
	if len(m.marks) == 0 {
		return m.noMark()
	}
	return m.cut(m.unmark(), use)
}

func (m *machine) noMark() error {
	return m.fail("the pickle closes a group that was never opened")
}

// unmark removes the last mark and returns its position in the stack.
func (m *machine) unmark() int {
	at, n := m.floor, len(m.marks)
	m.floor, m.marks = m.marks[n-1], m.marks[:n-1]
	return at
}

// last removes the n topmost values from the stack and calls use with them.
func (m *machine) last(n int, use func([]Value) error) error {
	if len(m.stack)-m.floor < n {
		return m.noValue()
	}
	return m.cut(len(m.stack)-n, use)
}

// cut removes the values from index from on, and calls use with them.
func (m *machine) cut(from int, use func([]Value) error) error {
	items := m.stack[from:]
	m.stack = m.stack[:from]
	return use(items)
}

func (m *machine) get(i uint64) error {
	v := m.memo.get(i)
	if v == 0 {
		return m.notStored(i)
	}
	m.push(v)
	return nil
}

func (m *machine) notStored(i uint64) error {
	return m.fail("the pickle refers to memo entry %d, which was never stored", i)
}

// put stores the topmost value in the memo. Picklers number memo entries one after the
// other, and each takes at least one byte. A number larger than the offset is refused, so
// the memo grows no faster than the file.
func (m *machine) put(i uint64) error {
	if len(m.stack) <= m.floor {
		return m.noValue()
	}
	if i > uint64(m.at) {
		return m.fail("memo entry %d: expected at most %d, one for every byte so far", i, m.at)
	}
	slot := m.memo.slot(i)
	if *slot == 0 {
		m.filled++
	}
	*slot = m.stack[len(m.stack)-1]
	return nil
}

func (m *machine) byLine(use func(uint64) error) error {
	text, err := m.in.line()
	if err != nil {
		return err
	}
	i, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return m.fail("expected the number of a memo entry, found %s", describeString(text))
	}
	return use(i)
}

func (m *machine) text(n uint64) error {
	raw, err := m.in.bytes(n)
	if err == nil {
		m.push(tagged(tagString, uint64(m.store.intern(raw))))
	}
	return err
}

func (m *machine) opaque(n uint64) error {
	m.push(other)
	return m.in.skip(n)
}

func (m *machine) long4(n int32) error {
	if n < 0 {
		return m.fail("an integer of %d bytes, expected 0 or more", n)
	}
	return m.long(uint64(n))
}

func (m *machine) long(n uint64) error {
	if n > 8 {
		m.push(huge)
		return m.in.skip(n)
	}
	if err := m.in.need(int(n)); err != nil {
		return err
	}
	raw := binary.LittleEndian.Uint64(m.in.buf[m.in.pos:]) // may reach into the spare bytes
	m.in.pos += int(n)
	m.push(m.store.long(raw, int(n)))
	return nil
}

func (m *machine) makeTuple(items []Value) error {
	m.push(m.store.tuple(items))
	return nil
}

func (m *machine) appendItems(items []Value) error {
	list, err := m.top()
	if err != nil {
		return err
	}
	if list.tag() != tagObject || !m.store.extend(list.payload(), items, tagList, tagEmptyList) {
		return m.unfit("appends to", "a list", list)
	}
	return nil
}

func (m *machine) addItems([]Value) error {
	set, err := m.top()
	if err == nil && set != other {
		err = m.unfit("adds to", "a set", set)
	}
	return err
}

func (m *machine) setItems(items []Value) error {
	dict, err := m.top()
	if err != nil {
		return err
	}
	if len(items)%2 != 0 {
		return m.fail("a dict is given %d keys and values: expected an even number", len(items))
	}
	for i := 0; i < len(items); i += 2 {
		if items[i].tag() == tagObject {
			return m.fail("%s cannot be the key of a dict", m.store.Describe(items[i]))
		}
	}
	if dict.tag() != tagObject || !m.setObject(dict.payload(), items) {
		return m.unfit("sets items of", "a dict", dict)
	}
	return nil
}

func (m *machine) setObject(dict uint64, items []Value) bool {
	if len(items) == 0 {
		return true
	}
	if m.store.objects.at(dict).tag() == tagEmptyDict {
		if number, ok := m.folder.FoldDict(m.store, items); ok {
			*m.store.objects.at(dict) = tagged(tagFolded, number)
			return true
		}
	}
	return m.store.extend(dict, items, tagDict, tagEmptyDict)
}

// unfit makes the error for a change of a value that is of another kind than want, or
// that was complete already. No pickler writes either.
func (m *machine) unfit(deed, want string, v Value) error {
	if _, folded := m.store.Folded(v); folded {
		return m.fail("the pickle %s %s that was already complete", deed, want)
	}
	return m.fail("the pickle %s %s: expected %s", deed, m.store.Describe(v), want)
}

// refuse makes the error for an opcode that is not executed, with its name and what it
// would do.
func (m *machine) refuse(op byte) error {
	known, ok := refused[op]
	if !ok {
		return m.fail("0x%02x is not an opcode of pickle protocols 2 to %d: the file is damaged or not a pickle", op, MaxProtocol)
	}
	label := fmt.Sprintf("opcode %s (%s)", known.name, quoteByte(op))
	if known.deed == "" {
		return m.fail("%s is not written by pickle protocols 2 to %d", label, MaxProtocol)
	}
	target, err := m.target(op)
	if err != nil {
		return err
	}
	return m.fail("%s would %s%s; snapshots hold only plain data, refused", label, known.deed, target)
}

// target names what an opcode would import.
func (m *machine) target(op byte) (string, error) {
	switch op {
	case opGlobal, opInst:
		module, err := m.in.line()
		if err != nil {
			return "", err
		}
		name, err := m.in.line()
		return importName(module, name), err
	case opStackGlobal:
		if len(m.stack)-m.floor >= 2 {
			module, _ := m.store.String(m.stack[len(m.stack)-2])
			name, _ := m.store.String(m.stack[len(m.stack)-1])
			return importName(module, name), nil
		}
	}
	return "", nil
}

// quoteByte shows a byte as a character if it is one, else in hexadecimal.
func quoteByte(b byte) string {
	if b < ' ' || b > '~' {
		return fmt.Sprintf("0x%02x", b)
	}
	return strconv.QuoteRune(rune(b))
}

func importName(module, name string) string {
	quoted := strconv.Quote(module + "." + name)
	return " " + quoted[1:len(quoted)-1]
}
