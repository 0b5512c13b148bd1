package trace

// textColumn is a text column of the current row group: per row an index into
// a dictionary that holds each distinct text once, by first appearance.
type textColumn struct {
	text       func(id int32) string
	event      func(device int, e *Event) int32 // the id of an event's text, or None
	annotation func(device, i int) int32        // the same for an annotation

	local   []int32 // by id: its place in the dictionary, or None
	met     []int32 // the ids that local knows
	byText  map[string]int32
	data    []byte  // the dictionary's texts
	offsets []int32 // text i is data[offsets[i]:offsets[i+1]]
	rows    []int32 // per row: place in the dictionary, or None
	nulls   int
}

// newTextColumn makes a column of texts named by ids below size.
func newTextColumn(size int, text func(int32) string) *textColumn {
	c := &textColumn{text: text, local: make([]int32, size), byText: map[string]int32{}, offsets: []int32{0}}
	for i := range c.local {
		c.local[i] = None
	}
	return c
}

func (c *textColumn) reset() {
	for _, id := range c.met {
		c.local[id] = None
	}
	clear(c.byText)
	c.met, c.data, c.offsets, c.rows, c.nulls = c.met[:0], c.data[:0], c.offsets[:1], c.rows[:0], 0
}

// add appends a row with the text of id, or without one.
func (c *textColumn) add(id int32) {
	if id == None {
		c.rows = append(c.rows, None)
		c.nulls++
		return
	}
	if c.local[id] == None {
		c.local[id] = c.place(c.text(id))
		c.met = append(c.met, id)
	}
	c.rows = append(c.rows, c.local[id])
}

func (c *textColumn) place(s string) int32 {
	i, ok := c.byText[s]
	if !ok {
		i = int32(len(c.offsets) - 1)
		c.byText[s] = i
		c.data = append(c.data, s...)
		c.offsets = append(c.offsets, int32(len(c.data)))
	}
	return i
}
