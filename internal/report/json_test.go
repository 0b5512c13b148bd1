package report

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/stalloc"
)

// jsonOf is what each command prints with --json, or writes with --summary.
var jsonOf = []struct {
	command string
	value   any
}{
	{"compile", CompiledAll{}},
	{"diff", Compared{}},
	{"diff of two", Changed{}},
	{"fit", Fitted{}},
	{"import", Imported{}},
	{"inspect", Inspected{}},
	{"pack", Packed{}},
	{"peak", Peaked{}},
	{"replay", Replayed{}},
	{"report", Reported{}},
	{"run", Served{}},
	{"verify", Verified{}},
}

// simulatedKeys are the keys of Simulated's object, which no struct tag has.
var simulatedKeys = []string{
	baseline.KeyNative, baseline.KeyExpandable, baseline.KeyGMLake, baseline.KeyGMLakePaper, stalloc.Key, stalloc.KeyByPosition,
	baseline.KeyAsync, KeyPool, KeyServed, KeyConfigured, "configurations[]",
}

// fields lists the paths of a type's JSON: "devices[].gap" is field gap of each
// element of devices.
func fields(t reflect.Type, path string, into []string) []string {
	switch t.Kind() {
	case reflect.Pointer:
		return fields(t.Elem(), path, into)
	case reflect.Slice:
		if t == reflect.TypeFor[Simulated]() {
			for _, key := range simulatedKeys {
				into = append(into, path+"."+key)
			}
			return fields(reflect.TypeFor[ComparedRow](), path+".*", into)
		}
		if path != "" {
			into[len(into)-1] += "[]"
			path += "[]"
		}
		return fields(t.Elem(), path, into)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			if f.Anonymous && name == "" {
				into = fields(f.Type, path, into)
				continue
			}
			full := strings.TrimPrefix(path+"."+name, ".")
			into = append(into, full)
			if f.Type != t && f.Type != reflect.SliceOf(t) { // Compared has others of its kind
				into = fields(f.Type, full, into)
			}
		}
	}
	return into
}

// TestEveryFieldIsDocumented: docs/json.md has a row for each field of each
// command's JSON, in its order, and no others.
func TestEveryFieldIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range jsonOf {
		want := fields(reflect.TypeOf(c.value), "", nil)
		got := documented(string(doc), c.command)
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("docs/json.md: %s: no row for %s", c.command, name)
			}
		}
		for _, name := range got {
			if !slices.Contains(want, name) {
				t.Errorf("docs/json.md: %s: a row for %s, which is no field", c.command, name)
			}
		}
		if !t.Failed() && !slices.Equal(got, want) {
			t.Errorf("docs/json.md: %s: expected the order %v, found %v", c.command, want, got)
		}
	}
}

// documented lists the first cells of the table of a command's section.
func documented(doc, command string) []string {
	_, section, _ := strings.Cut(doc, "\n## "+command+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for line := range strings.Lines(section) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(rest, "`")
			names = append(names, name)
		}
	}
	return names
}
