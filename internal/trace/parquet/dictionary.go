package parquet

// Dictionary gathers a text column for Writer, one row group at a time: each distinct
// text once, by first appearance, and an index for each row. The caller names texts by
// small numbers, their ids, so that Add looks at the text of an id once per row group.
// Texts with different ids may be equal.
type Dictionary struct {
	text    func(id int32) string
	local   []int32 // by id: its text's index in the dictionary, or None
	met     []int32 // the ids that local knows
	byText  map[string]int32
	data    []byte  // the dictionary's texts
	offsets []int32 // text i is data[offsets[i]:offsets[i+1]]
	rows    []int32 // per row: an index into the dictionary, or None
	nulls   int     // rows that are None
}

// NewDictionary makes an empty Dictionary with room for rows rows. Ids are 0 to ids-1;
// text returns the text of an id.
func NewDictionary(rows, ids int, text func(id int32) string) *Dictionary {
	d := &Dictionary{text: text, local: make([]int32, ids), byText: map[string]int32{}, offsets: []int32{0}, rows: make([]int32, 0, rows)}
	for i := range d.local {
		d.local[i] = None
	}
	return d
}

// Reset begins the next row group.
func (d *Dictionary) Reset() {
	for _, id := range d.met {
		d.local[id] = None
	}
	clear(d.byText)
	d.met, d.data, d.offsets, d.rows, d.nulls = d.met[:0], d.data[:0], d.offsets[:1], d.rows[:0], 0
}

// Add appends a row with the text of id, or without a text if id is None.
func (d *Dictionary) Add(id int32) {
	if id == None {
		d.rows = append(d.rows, None)
		d.nulls++
		return
	}
	if d.local[id] == None {
		d.local[id] = d.place(d.text(id))
		d.met = append(d.met, id)
	}
	d.rows = append(d.rows, d.local[id])
}

// Bytes is the length of the row group's distinct texts together, in bytes.
func (d *Dictionary) Bytes() int { return len(d.data) }

// place returns the index of a text, and adds the text if it is new.
func (d *Dictionary) place(s string) int32 {
	i, ok := d.byText[s]
	if !ok {
		i = int32(len(d.offsets) - 1)
		d.byText[s] = i
		d.data = append(d.data, s...)
		d.offsets = append(d.offsets, int32(len(d.data)))
	}
	return i
}
