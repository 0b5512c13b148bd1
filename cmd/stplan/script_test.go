package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stplan/stplan/internal/trace"
)

var update = flag.Bool("update", false, "rewrite the golden output in testdata/script and examples")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"stplan": func() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// TestScripts runs testdata/script/*.txt: each is a command line session with
// its files. Beside testscript's own commands it knows those of scriptCommands.
func TestScripts(t *testing.T) {
	history := exampleHistory(t)
	failed, _ := failedHistory(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                scriptCommands,
		Setup: func(env *testscript.Env) error {
			root, err := os.Getwd()
			env.Setenv("EXAMPLES", root+"/../../examples")
			env.Setenv("VECTORS", root+"/../../internal/planfile/testdata/vectors")
			env.Setenv("PYTHON", python())
			env.Setenv("EXAMPLE_HISTORY", history)
			env.Setenv("FAILED_HISTORY", failed)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
			env.Setenv("FAKE_TORCH", filepath.Join(root, "../../runtime/torch/tests/fake"))
			env.Setenv("FAKE_SERVING", filepath.Join(root, "../../runtime/torch/tests/serving"))
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "python":
				return python() != "", nil
			case "history":
				return history != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// python is the interpreter itself, which a script can run without the home
// folder that a version manager's python3 looks for; empty if there is none
// that the recorder supports.
var python = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable if sys.version_info >= (3, 9) else '')").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
})

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// exits CODE COMMAND ARG...: runs it and demands this very exit code.
	"exits": func(ts *testscript.TestScript, neg bool, args []string) {
		want, err := strconv.Atoi(args[0])
		ts.Check(err)
		err = ts.Exec(args[1], args[2:]...)
		var exit *exec.ExitError
		got := 0
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if got != want {
			ts.Fatalf("exit code %d, want %d", got, want)
		}
	},
	// pickle JSON FILE: writes the JSON value as a pickle of protocol 2.
	"pickle": func(ts *testscript.TestScript, neg bool, args []string) {
		dec := json.NewDecoder(bytes.NewReader([]byte(ts.ReadFile(args[0]))))
		dec.UseNumber()
		var v any
		ts.Check(dec.Decode(&v))
		var buf bytes.Buffer
		buf.WriteString("\x80\x02")
		ts.Check(appendPickle(&buf, v))
		buf.WriteByte('.')
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), buf.Bytes(), 0o666))
	},
	// training LENGTH FILE: writes the recording of a made-up training job as Parquet. The
	// length is that of all sequences, or "varied".
	"training": func(ts *testscript.TestScript, neg bool, args []string) {
		length := int64(0)
		if args[0] != "varied" {
			var err error
			length, err = strconv.ParseInt(args[0], 10, 64)
			ts.Check(err)
		}
		var buf bytes.Buffer
		ts.Check(trace.WriteParquet(&buf, madeUpTraining(length), trace.Options{}))
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), buf.Bytes(), 0o666))
	},
	// gzip FILE FILE.gz
	"gzip": func(ts *testscript.TestScript, neg bool, args []string) {
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		_, err := w.Write([]byte(ts.ReadFile(args[0])))
		ts.Check(err)
		ts.Check(w.Close())
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), buf.Bytes(), 0o666))
	},
	// vector NAME FILE: the plan of one of internal/planfile's test vectors.
	"vector": func(ts *testscript.TestScript, neg bool, args []string) {
		text, err := os.ReadFile(ts.MkAbs(ts.Getenv("VECTORS") + "/" + args[0] + ".vec"))
		ts.Check(err)
		_, body, _ := strings.Cut(string(text), "\n\n")
		data, err := hex.DecodeString(strings.ReplaceAll(body, "\n", ""))
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), data, 0o666))
	},
	// head BYTES FILE OUT: the first bytes of a file; negative leaves out so
	// many at the end.
	"head": func(ts *testscript.TestScript, neg bool, args []string) {
		n, err := strconv.Atoi(args[0])
		ts.Check(err)
		data := ts.ReadFile(args[1])
		if n < 0 {
			n += len(data)
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(data[:n]), 0o666))
	},
	// poke OFFSET HEX FILE OUT: overwrites bytes.
	"poke": func(ts *testscript.TestScript, neg bool, args []string) {
		at, err := strconv.Atoi(args[0])
		ts.Check(err)
		var patch []byte
		_, err = fmt.Sscanf(args[1], "%x", &patch)
		ts.Check(err)
		data := []byte(ts.ReadFile(args[2]))
		copy(data[at:], patch)
		ts.Check(os.WriteFile(ts.MkAbs(args[3]), data, 0o666))
	},
	// nofile GLOB...: no file matches, hidden ones included.
	"nofile": func(ts *testscript.TestScript, neg bool, args []string) {
		entries, err := os.ReadDir(ts.MkAbs(args[0]))
		ts.Check(err)
		for _, e := range entries {
			ts.Fatalf("%s holds %s, expected nothing", args[0], e.Name())
		}
	},
}

// appendPickle encodes what JSON can say, in opcodes of protocol 2.
func appendPickle(buf *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case nil:
		buf.WriteByte('N')
	case bool:
		buf.WriteByte(map[bool]byte{true: '\x88', false: '\x89'}[v])
	case string:
		buf.WriteByte('X')
		buf.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(v))))
		buf.WriteString(v)
	case json.Number:
		return appendPickleNumber(buf, v)
	case []any:
		buf.WriteString("](")
		for _, e := range v {
			if err := appendPickle(buf, e); err != nil {
				return err
			}
		}
		buf.WriteByte('e')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		buf.WriteString("}(")
		for _, k := range keys {
			if err := errors.Join(appendPickle(buf, k), appendPickle(buf, v[k])); err != nil {
				return err
			}
		}
		buf.WriteByte('u')
	default:
		return fmt.Errorf("cannot pickle a %T", v)
	}
	return nil
}

func appendPickleNumber(buf *bytes.Buffer, n json.Number) error {
	if i, err := n.Int64(); err == nil {
		buf.WriteString("\x8a\x08")
		buf.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		return nil
	}
	f, err := n.Float64()
	if err != nil {
		return err
	}
	buf.WriteByte('G')
	buf.Write(binary.BigEndian.AppendUint64(nil, math.Float64bits(f)))
	return nil
}
