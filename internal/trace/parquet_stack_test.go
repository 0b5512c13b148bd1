package trace

import "testing"

// Frames can be read from their text, and every frame has one text.
func TestFrameText(t *testing.T) {
	for _, c := range []struct {
		frame Frame
		line  string
	}{
		{Frame{"a.py", 12, "f"}, "a.py:12:f"},
		{Frame{"", 0, ""}, ":0:"},
		{Frame{`C:\x.py`, 1, "a::b(int)"}, `C\:\\x.py:1:a::b(int)`},
		{Frame{"a\nb", -1, "c\\n\nd"}, `a\nb:-1:c\\n\nd`},
	} {
		if got := c.frame.line(); got != c.line {
			t.Errorf("%+v is %q, want %q", c.frame, got, c.line)
		}
		if f, err := parseFrame(c.line); err != nil || f != c.frame {
			t.Errorf("%q is %+v, %v, want %+v", c.line, f, err, c.frame)
		}
	}
	for _, line := range []string{"", "a", "a:1", "a:x:f", "a:01:f", "a:-0:f", "a:2147483648:f", `a\x:1:f`, `a:1:\`, `a\`, `a:1:\:`, "a\nb:1:f", "a:1:f\n"} {
		if f, err := parseFrame(line); err == nil {
			t.Errorf("%q read as %+v", line, f)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	f.Add(`C\:\\x.py:1:a::b`)
	f.Fuzz(func(t *testing.T, line string) {
		if frame, err := parseFrame(line); err == nil && frame.line() != line {
			t.Errorf("%q reads as %+v, which is %q", line, frame, frame.line())
		}
	})
}
