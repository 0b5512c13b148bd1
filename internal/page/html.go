package page

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

// assets are the page's own sources. The scripts share one scope, in the order of scripts.
//
//go:embed assets
var assets embed.FS

var scripts = []string{"format.js", "data.js", "view.js", "colours.js", "raster.js", "chart.js", "picture.js", "details.js", "flame.js", "tables.js", "main.js"}

// Page is all that one HTML file shows.
type Page struct {
	Trace, Plan, Producer string
	Devices               []*Device
}

// WriteHTML writes the page as one file that asks for nothing else.
func (p *Page) WriteHTML(w io.Writer) error {
	shell, err := asset("page.html")
	if err != nil {
		return err
	}
	style, err := asset("style.css")
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, name := range scripts {
		text, err := asset(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&script, "// %s\n%s\n", name, text)
	}
	head, tail, _ := strings.Cut(shell, "<!--data-->")
	head = strings.NewReplacer("<!--title-->", html.EscapeString(p.Trace), "/*style*/", style).Replace(head)
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	if err := p.writeData(w); err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.Replace(tail, "/*script*/", script.String(), 1))
	return err
}

func asset(name string) (string, error) {
	text, err := assets.ReadFile("assets/" + name)
	return string(text), err
}

// writeData writes the figures as JSON and each device as text of base64. JSON escapes
// what could end a script element.
func (p *Page) writeData(w io.Writer) error {
	type device struct {
		Ordinal int     `json:"device"`
		Figures Figures `json:"figures"`
	}
	figures := struct {
		Trace    string   `json:"trace"`
		Plan     string   `json:"plan"`
		Producer string   `json:"producer"`
		Devices  []device `json:"devices"`
	}{Trace: p.Trace, Plan: p.Plan, Producer: p.Producer}
	for _, d := range p.Devices {
		figures.Devices = append(figures.Devices, device{d.Ordinal, d.Figures})
	}
	text, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "<script type=\"application/json\" id=\"figures\">%s</script>\n", escapeScript(text)); err != nil {
		return err
	}
	for i, d := range p.Devices {
		if _, err := fmt.Fprintf(w, "<script type=\"text/plain\" id=\"device-%d\">", i); err != nil {
			return err
		}
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		if err := d.writeBlob(encoder); err != nil {
			return err
		}
		if err := encoder.Close(); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "</script>\n"); err != nil {
			return err
		}
	}
	return nil
}

// escapeScript escapes "<", which some types' own JSON leaves as it is.
func escapeScript(text []byte) []byte { return bytes.ReplaceAll(text, []byte("<"), []byte(`\u003c`)) }
