package report

import (
	"fmt"
	"strconv"
)

// Count formats n with thousands separators: 23430 is "23,430".
func Count[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Bytes formats a size in the largest binary unit that leaves at least one
// digit before the point, to two decimals: "23.28 GiB".
func Bytes[T ~int64 | ~uint64](n T) string {
	const units = "KMGTPE"
	v, unit := float64(n), 0
	for (v >= 1024 || v <= -1024) && unit < len(units) {
		v /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", int64(n))
	}
	return fmt.Sprintf("%.2f %ciB", v, units[unit-1])
}

// Percent formats a share of one: 0.8782 is "87.82 %".
func Percent(share float64) string {
	return fmt.Sprintf("%.2f %%", 100*share)
}

// Gap formats a plan's distance from its lower bound, (plan − bound) / bound.
// Nothing but an exact zero prints as zero.
func Gap(plan, bound int64) string {
	if plan == bound {
		return "0 % (optimal)"
	}
	gap := GapShare(plan, bound)
	if gap < 0.00005 {
		return fmt.Sprintf("%.2g %%", 100*gap)
	}
	return fmt.Sprintf("%.3f %%", 100*gap)
}

// GapShare is (plan − bound) / bound, 0 for an empty plan.
func GapShare(plan, bound int64) float64 {
	if bound == 0 {
		return 0
	}
	return float64(plan-bound) / float64(bound)
}
