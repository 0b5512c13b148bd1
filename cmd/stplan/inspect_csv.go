package main

import (
	"fmt"
	"strconv"

	"github.com/stplan/stplan/internal/planfile"
	"github.com/stplan/stplan/internal/report"
)

// Limits of --repeat, in rounds and in rows: what is printed stays within what a
// file of some gigabytes holds.
const (
	maxRepeat = 1000
	maxRows   = 50_000_000
)

func checkRepeat(rounds int, csv bool) error {
	if rounds < 1 || rounds > maxRepeat {
		return fmt.Errorf("--repeat: expected 1 to %d rounds, found %d", maxRepeat, rounds)
	}
	if !csv {
		return &hinted{fmt.Errorf("--repeat says how far --csv unrolls a plan"), "--csv --repeat " + strconv.Itoa(rounds)}
	}
	return nil
}

// writeSlots prints the planned allocations of one device. A repeat of 0 was not
// asked for.
func (a *app) writeSlots(name string, d *planfile.Device, repeat int) error {
	if d.Mode == planfile.ModePeriodic {
		if repeat == 0 {
			repeat = report.DefaultRounds
		}
		if err := checkRows(name, d, repeat); err != nil {
			return err
		}
	} else if repeat > 0 {
		return &hinted{fmt.Errorf("%s: device %d: a plan of mode recorded has no rounds to unroll", name, d.Ordinal), "leave --repeat out"}
	}
	return report.WriteSlots(a.stdout, d, repeat)
}

// checkRows bounds what unrolling prints.
func checkRows(name string, d *planfile.Device, repeat int) error {
	if rows := report.SlotRows(d, repeat); rows > maxRows {
		return &hinted{fmt.Errorf("%s: device %d: %d rounds would be %s rows, expected %s at most", name, d.Ordinal, repeat, report.Count(rows), report.Count(uint64(maxRows))), "--repeat 1"}
	}
	return nil
}
