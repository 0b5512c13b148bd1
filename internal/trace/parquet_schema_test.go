package trace

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	pqfile "github.com/apache/arrow/go/v17/parquet/file"
)

// TestColumnsSayWhatTheyMean: by Arrow's own reader, the metadata of a file describes each of
// its columns, and docs/trace.md lists the same columns.
func TestColumnsSayWhatTheyMean(t *testing.T) {
	tr, err := ReadFile("../../examples/lora-oom/lora-oom.pickle.gz", Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := pqfile.NewParquetReader(bytes.NewReader(encode(t, tr)))
	if err != nil {
		t.Fatal(err)
	}
	text := r.MetaData().KeyValueMetadata().FindValue(keyColumns)
	if text == nil {
		t.Fatalf("no %s in the metadata", keyColumns)
	}
	var meanings map[string]string
	if err := json.Unmarshal([]byte(*text), &meanings); err != nil {
		t.Fatal(err)
	}
	schema := r.MetaData().Schema
	for i := range schema.NumColumns() {
		if name := schema.Column(i).Name(); meanings[name] == "" {
			t.Errorf("column %s is not described", name)
		}
	}
	if len(meanings) != schema.NumColumns() {
		t.Errorf("%d descriptions of %d columns", len(meanings), schema.NumColumns())
	}
	doc, err := os.ReadFile("../../docs/trace.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columnsWanted {
		if columnMeanings[c.Name] == "" || !slices.ContainsFunc(strings.Split(string(doc), "\n"), func(line string) bool { return strings.HasPrefix(line, "| `"+c.Name+"` | ") }) {
			t.Errorf("column %s has no description, or docs/trace.md no row for it", c.Name)
		}
	}
}
