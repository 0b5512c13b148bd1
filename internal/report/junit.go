package report

import (
	"encoding/xml"
	"io"
)

// Verdict is a limit that something was held to.
type Verdict struct {
	Subject string // what was compared: a plan or a recording, and its device
	Limit   string // the limit, as it was given
	Problem string // how it was not met, "" if it was
}

// junitSuite is JUnit's XML, as far as CI systems read it: a suite with a case for each
// limit and subject.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes verdicts as JUnit's XML.
func WriteJUnit(w io.Writer, suite string, verdicts []Verdict) error {
	s := junitSuite{Name: suite, Tests: len(verdicts)}
	for _, v := range verdicts {
		c := junitCase{Class: Printable(v.Subject), Name: Printable(v.Limit)}
		if v.Problem != "" {
			s.Failures++
			c.Failure = &junitFailure{Printable(v.Problem)}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
