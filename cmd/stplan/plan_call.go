package main

import (
	"fmt"
	"regexp"

	"github.com/stplan/stplan/internal/planfile"
)

// callForm is the content of the file that callOf names, with the digests behind it, one in a line. Of longer files than mostCall
// bytes none is written, and _similar.py reads none.
const (
	callForm = "stplan-call 1\n"
	mostCall = 1 << 16
)

var callDigest = regexp.MustCompile(`^[0-9a-f]{16}$`)

// offerPlan has a plan of the cache serve similar runs too, unless it is one that does not pay: with such a plan a run
// learns nothing, and for another one a plan may pay.
func (a *app) offerPlan(plan string, call []string) error {
	p, err := a.readPlan(plan)
	if err != nil {
		return err
	}
	pays := len(call) > 0
	for i := range p.Devices {
		pays = pays && p.Devices[i].Advice != planfile.AdvicePool
	}
	text := callForm
	for _, digest := range call {
		if !callDigest.MatchString(digest) {
			return fmt.Errorf("%q is not the digest of an argument", digest)
		}
		text += digest + "\n"
	}
	if !pays || len(text) > mostCall {
		return removeFile(callOf(plan))
	}
	return a.outputs.writeBytes(callOf(plan), []byte(text))
}
