package compile

import "time"

// tailShare is how long all that follows the search takes, as a multiple of the time that
// the timeline took: serving the recording with the plan and without, writing the plan and
// proving it. Both grow with the recording, and both run on the same machine under the same
// load. It was 2 to 5 in profiles of an RL job and of a version of it with varied sizes, the
// largest recordings at hand.
const tailShare = 5

// startClock gives the device its share of the time limit.
func (c *compiler) startClock() {
	if c.TimeLimit > 0 {
		c.began = time.Now()
		c.deadline = c.began.Add(c.TimeLimit)
	}
}

// alignShare is the part of the time limit, as a divisor, after which iterations are aligned in no further way. All six ways of 24 steps
// of a mixture of experts took as long as everything else: a run that waited 45 s for its plan had none of all steps.
const alignShare = 4

// alignedEnough says whether that part is over, and remembers that the limit stopped something.
func (c *compiler) alignedEnough() bool {
	if c.TimeLimit <= 0 || time.Since(c.began) < c.TimeLimit/alignShare {
		return false
	}
	c.limited = true
	return true
}

// reserve takes off what is done after the search, by the time that the timeline took.
func (c *compiler) reserve(timeline time.Duration) {
	if !c.deadline.IsZero() {
		c.deadline = c.deadline.Add(-tailShare * timeline)
	}
}

// remaining is what is left of the time limit for the search, in the packer's terms: 0 is
// no limit.
func (c *compiler) remaining() time.Duration {
	if c.deadline.IsZero() {
		return 0
	}
	return max(time.Until(c.deadline), 1)
}

// late says whether less than need is left for the search, and remembers that the limit
// stopped something.
func (c *compiler) late(need time.Duration) bool {
	if c.deadline.IsZero() || time.Until(c.deadline) > need {
		return false
	}
	c.limited = true
	return true
}

// shareOf is the share of a time limit that the next of some devices gets: what is left of
// it since began, in equal parts. 0 is no limit.
func shareOf(limit time.Duration, began time.Time, devices int) time.Duration {
	if limit == 0 {
		return 0
	}
	return max((limit-time.Since(began))/time.Duration(devices), 1)
}
