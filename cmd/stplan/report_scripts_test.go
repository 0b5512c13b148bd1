package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stplan/stplan/internal/report"
)

// scriptsOf are sources of the page, as the body of a function that returns what result says.
func scriptsOf(t *testing.T, result string, names ...string) string {
	t.Helper()
	body := ""
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "internal", "page", "assets", name))
		if err != nil {
			t.Fatal(err)
		}
		body += string(text)
	}
	return fmt.Sprintf("(() => {%s\n%s})()", body, result)
}

// TestPageFormatsAsGo: the page writes numbers as the commands do, those in the middle
// between two decimals too.
func TestPageFormatsAsGo(t *testing.T) {
	b := openBrowser(t, 400, 300)
	random := rand.New(rand.NewPCG(5, 6))
	sizes := []int64{0, 1, 511, 512, 1023, 1024, 1<<20 - 1, 1 << 40, math.MaxInt32}
	for k := range int64(40) {
		sizes = append(sizes, 1024+128*k, 1<<20+k<<17, 1<<30+k<<27)
	}
	shares := []float64{0, 1, 0.5, 0.98125, 0.123125, 0.00625, 1.0 / 3}
	for range 500 {
		sizes = append(sizes, random.Int64N(1<<uint(1+random.IntN(44))))
		shares = append(shares, random.Float64())
	}
	input, err := json.Marshal([]any{sizes, shares})
	if err != nil {
		t.Fatal(err)
	}
	var got [3][]string
	b.eval(scriptsOf(t, fmt.Sprintf("const [sizes, shares] = %s; return [sizes.map(bytes), sizes.map(count), shares.map(percent)];", input), "format.js"), &got)
	for i, n := range sizes {
		if got[0][i] != report.Bytes(n) || got[1][i] != report.Count(n) {
			t.Errorf("%d B is %q and %q, expected %q and %q", n, got[0][i], got[1][i], report.Bytes(n), report.Count(n))
		}
	}
	for i, share := range shares {
		if got[2][i] != report.Percent(share) {
			t.Errorf("%v is %q, expected %q", share, got[2][i], report.Percent(share))
		}
	}
}

// TestPageDrawsTheBuffers paints a page's own data with its own scripts, whole and zoomed
// in, and compares pixels with what a look at all buffers says.
func TestPageDrawsTheBuffers(t *testing.T) {
	b := openBrowser(t, 400, 300)
	_, page := reported(t, filepath.Join("..", "..", "examples", "lora-oom", "lora-oom.pickle.gz"))
	b.open(page)
	const compare = `return (async () => {
		const d = await readDevice(0), colours = new Colours(d, "category", themes.light), width = 211, height = 97, wrong = [];
		let looked = 0, painted = 0, seed = 1;
		const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
		const peakSeen = [];
		for (const zoom of [1, 0.3, 0.02, 0.0005]) {
			const view = new View(d.events, d.arena_units);
			view.zoom(zoom, d.peak.event);
			const instants = view.instants(width, d.highest), frame = new Frame(view, width, height, instants);
			const pixels = new Uint32Array(width * height);
			paintBuffers(pixels, frame, d, d.place, d.freed, colours, false, null);
			peakSeen.push(instants.includes(d.peak.event));
			for (let k = 0; k < 1500; k++) {
				const x = random(width), y = random(height), event = instants[x];
				const address = view.a0 + (1 - (y + 0.5) / height) * (view.a1 - view.a0);
				let want = 0, edge = 0;
				for (let i = 0; i < d.n; i++) if (d.place[i] !== nowhere && d.start[i] <= event && event < d.freed[i] && d.place[i] <= address && address < d.place[i] + d.units[i]) {
					want = colours.fills[colours.groups[i]];
					edge = colours.edges[colours.groups[i]];
				}
				looked++;
				if (want) painted++;
				const got = pixels[y * width + x];
				if (got !== want && got !== edge) wrong.push([zoom, x, y, event, address, got, want]);
			}
		}
		return { looked, painted, wrong: wrong.length, first: JSON.stringify(wrong[0] || null), peakSeen };
	})();`
	var got struct {
		Looked, Painted, Wrong int
		First                  string
		PeakSeen               []bool
	}
	b.eval(scriptsOf(t, compare, "format.js", "data.js", "view.js", "colours.js", "raster.js"), &got)
	if got.Wrong > 0 || got.Painted < got.Looked/3 {
		t.Errorf("%d of %d pixels are wrong, %d show a buffer; the first: %s", got.Wrong, got.Looked, got.Painted, got.First)
	}
	for i, seen := range got.PeakSeen {
		if !seen {
			t.Errorf("no column shows the peak in view %d", i)
		}
	}
}
