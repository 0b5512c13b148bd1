package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven over a pipe by its DevTools
// protocol.
type browser struct {
	t       *testing.T
	out     io.Writer
	answers chan protocolMessage
	session string
	last    int
	began   float64 // CPU seconds of the page's main thread when count was called
	// problems are exceptions and errors of the page.
	problems []string
}

type protocolMessage struct {
	ID        int             `json:"id,omitempty"`
	Method    string          `json:"method,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// findBrowser is the browser to test with: $STPLAN_BROWSER, or Chromium if there is one.
func findBrowser(t *testing.T) string {
	for _, name := range []string{os.Getenv("STPLAN_BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip(`no Chromium: "make report-test" installs one, or name it in STPLAN_BROWSER`)
	return ""
}

// openBrowser starts a browser with an empty page of the given size.
func openBrowser(t *testing.T, width, height int) *browser {
	path := findBrowser(t)
	fromUs, toBrowser := pipe(t)
	fromBrowser, toUs := pipe(t)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{t: t, out: toBrowser, answers: make(chan protocolMessage, 64)}
	t.Cleanup(func() {
		toBrowser.Close() // it ends then
		ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		ended.Stop()
	})
	go b.read(fromBrowser)
	b.attach(width, height)
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// read passes on what the browser says, one message up to each NUL.
func (b *browser) read(r io.Reader) {
	defer close(b.answers)
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m protocolMessage
		if json.Unmarshal(text[:len(text)-1], &m) == nil {
			b.answers <- m
		}
	}
}

func (b *browser) attach(width, height int) {
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// call asks for something and waits for the answer.
func (b *browser) call(method string, params any, result any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(protocolMessage{ID: b.last, Method: method, Params: params, SessionID: b.session})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	late := time.After(2 * time.Minute)
	for {
		select {
		case m, open := <-b.answers:
			switch {
			case !open:
				b.t.Fatalf("%s: the browser has ended", method)
			case m.ID == 0:
				b.note(m)
			case m.ID == b.last && m.Error != nil:
				b.t.Fatalf("%s: %s", method, m.Error)
			case m.ID == b.last:
				if result != nil {
					if err := json.Unmarshal(m.Result, result); err != nil {
						b.t.Fatalf("%s: %v", method, err)
					}
				}
				return
			}
		case <-late:
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// note keeps what goes wrong on the page, and any request that it makes.
func (b *browser) note(m protocolMessage) {
	text, _ := json.Marshal(m.Params)
	var event struct {
		Entry   struct{ Level, Text string }
		Request struct{ URL string }
	}
	_ = json.Unmarshal(text, &event)
	switch {
	case m.Method == "Runtime.exceptionThrown":
		b.problems = append(b.problems, string(text))
	case m.Method == "Log.entryAdded" && event.Entry.Level == "error":
		b.problems = append(b.problems, event.Entry.Text)
	case m.Method == "Network.requestWillBeSent" && len(event.Request.URL) > 5 && event.Request.URL[:5] != "file:":
		b.problems = append(b.problems, "request for "+event.Request.URL)
	}
}

// open loads a file and waits until the page says that it is drawn. It returns the time
// from the start of the navigation, by the page's clock.
func (b *browser) open(file string) time.Duration {
	b.t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		b.t.Fatal(err)
	}
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	var ms float64
	b.eval(`new Promise((done) => {
		const look = () => {
			const { ready, failed } = document.documentElement ? document.documentElement.dataset : {};
			if (ready || failed) requestAnimationFrame(() => done(failed ? -1 : Number(ready)));
			else setTimeout(look, 5);
		};
		look();
	})`, &ms)
	if ms < 0 {
		b.t.Fatalf("%s: the page says that it cannot be shown", file)
	}
	return time.Duration(ms) * time.Millisecond
}

// eval runs an expression in the page. A promise is waited for.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	if result != nil {
		if err := json.Unmarshal(out.Result.Value, result); err != nil {
			b.t.Fatalf("%s: %v: %s", expression, err, out.Result.Value)
		}
	}
}

// mouse moves or presses the mouse. kind is mousePressed, mouseMoved, mouseReleased or
// mouseWheel.
func (b *browser) mouse(kind string, x, y, deltaY float64) {
	b.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y, "button": "none"}
	switch kind {
	case "mousePressed", "mouseReleased":
		params["button"], params["clickCount"] = "left", 1
	case "mouseWheel":
		params["deltaX"], params["deltaY"], params["modifiers"] = 0, deltaY, 2 // Ctrl
	}
	b.call("Input.dispatchMouseEvent", params, nil)
}

// key presses a key that writes one character.
func (b *browser) key(char string) {
	b.t.Helper()
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": char, "text": char}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": char}, nil)
}

// middle is the middle of an element, in the window.
func (b *browser) middle(id string) (x, y float64) {
	b.t.Helper()
	var at [2]float64
	b.eval(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()`, id), &at)
	return at[0], at[1]
}

// screenshot is a picture of the window, as PNG.
func (b *browser) screenshot() []byte {
	b.t.Helper()
	var out struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	return out.Data
}

// scheme makes the page believe that the reader prefers dark or light.
func (b *browser) scheme(name string) {
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}
