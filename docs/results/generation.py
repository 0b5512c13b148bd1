#!/usr/bin/env python3
"""Change how many tokens each generation of a recording has; write the recording that comes of it.

    generation.py SNAPSHOT.pickle.gz OUT.pickle.gz --marker BYTES --tokens N,N,... [--per TOKENS]

--marker is the size of a request that each token makes once, and nothing else, such as its logits. --tokens has a
number for each generation of the recording, 2 or more; the recorded ones all have the same. If there are to be more
generations than were recorded, --per says how many tokens each recorded one has, and the whole steps that are alike
are repeated in turn. A shorter generation stops early: its last tokens are left out, and what they would have left
behind is what the last token that remains leaves behind.
A longer one repeats its last token, whose sizes go on growing as they did from the token before. Whatever comes
after the generation stays as it is. Addresses are new ones, as the recorded ones are taken by
blocks that now live longer. What lived before the recording is left out. Needs only Python 3, and a
recording of one device with one stream.
"""
import argparse
import gzip
import pickle
import sys

from unseen import Plain


class Recording:
    """What a recording does: sizes[i] is that of allocation i, events are (is it an allocation, i),
    and time[i] is when."""

    def __init__(self, path):
        with gzip.open(path) as f:
            self.snapshot = Plain(f).load()
        traces = [t for t in self.snapshot["device_traces"] if t]
        if len(traces) != 1:
            sys.exit(f"generation.py: {path}: {len(traces)} devices have events, expected 1")
        (trace,) = traces
        streams = {entry.get("stream", 0) for entry in trace}
        if len(streams) != 1:
            sys.exit(f"generation.py: {path}: {len(streams)} streams, expected 1")
        self.sizes, self.events, self.at, self.times = [], [], [], []
        live = {}
        for entry in trace:
            if entry["action"] == "alloc":
                live[entry["addr"]] = len(self.sizes)
                self.at.append(len(self.events))
                self.add(True, len(self.sizes), entry)
                self.sizes.append(entry["size"])
            elif entry["action"] == "free_completed" and entry["addr"] in live:
                self.add(False, live.pop(entry["addr"]), entry)

    def add(self, begins, i, entry):
        self.events.append((begins, i))
        self.times.append(entry["time_us"])

    def repeat(self, starts, more):
        """Put `more` steps before the last one: those before it in turn, as far as they are alike. starts are the
        steps' first allocations. What a step frees of the step before is then of the step that is repeated before it."""
        count, last = starts[-1] - starts[-2], starts[-1]
        end = self.at[last]

        def step(n):
            return self.events[self.at[starts[n]] : self.at[starts[n + 1]]]

        def shape(n):
            return [(begins, i - starts[n]) for begins, i in step(n)]

        alike = [n for n in range(1, len(starts) - 1) if shape(n) == shape(len(starts) - 2)]
        tail = [(self.events[k], self.times[k]) for k in range(end, len(self.events))]
        sizes, notes = self.sizes[last:], self.snapshot.get("external_annotations", [])
        del self.events[end:], self.times[end:], self.sizes[last:], self.at[last:]
        later = [note for note in notes if note["time_us"] >= tail[0][1]]
        notes = [note for note in notes if note["time_us"] < tail[0][1]]
        passed = 0

        def append(events, first, since):
            for (begins, i), time in events:
                if begins:
                    self.at.append(len(self.events))
                self.events.append((begins, i - first + last + passed * count))
                self.times.append(time + since)

        time = tail[0][1]
        for n in range(more):
            of = alike[n % len(alike)]
            first, until = self.at[starts[of]], self.at[starts[of + 1]]
            began, ended = self.times[first], self.times[until] if until < end else tail[0][1]
            since = time - began
            append([(self.events[k], self.times[k]) for k in range(first, until)], starts[of], since)
            self.sizes += self.sizes[starts[of] : starts[of + 1]]
            notes += [dict(note, time_us=note["time_us"] + since) for note in notes if began <= note["time_us"] < ended]
            time, passed = time + ended - began, passed + 1
        append(tail, last, time - tail[0][1])
        self.sizes += sizes
        notes += [dict(note, time_us=note["time_us"] + time - tail[0][1]) for note in later]
        self.snapshot = dict(self.snapshot, external_annotations=notes)


class Changed:
    """The changed recording as it grows. A block is known by the allocation that it stands for."""

    def __init__(self, recording):
        self.recording, self.sizes, self.events, self.live = recording, [], [], {}

    def allocate(self, block, size, time):
        self.live[block] = len(self.sizes)
        self.events.append((True, len(self.sizes), time))
        self.sizes.append(size)

    def free(self, block, time):
        self.events.append((False, self.live.pop(block), time))

    def copy(self, first, end):
        """Do what the recording does in the events [first, end)."""
        for k in range(first, end):
            begins, i = self.recording.events[k]
            if begins:
                self.allocate(i, self.recording.sizes[i], self.recording.times[k])
            else:
                self.free(i, self.recording.times[k])

    def trace(self):
        """Entries of a snapshot. Blocks of one size use one another's addresses again."""
        entries, idle, address, top = [], {}, {}, 0x7F0000000000
        for begins, i, time in self.events:
            size = (self.sizes[i] + 511) // 512 * 512
            if begins:
                free = idle.setdefault(size, [])
                if not free:
                    free.append(top)
                    top += size
                address[i] = free.pop()
            else:
                idle[size].append(address[i])
            for action in ["alloc"] if begins else ["free_requested", "free_completed"]:
                entries.append({"action": action, "addr": address[i], "size": self.sizes[i], "stream": 0, "time_us": time, "frames": []})
        return entries


def shorten(changed, starts, keep, done):
    """Leave out all but `keep` tokens; starts are the tokens' first allocations. The last one, from
    which the generation goes on to what comes after it, stays. done: events already dealt with.
    Return the same, and the number of tokens left."""
    r, last = changed.recording, len(starts) - 2  # the last one whose end is known
    cut, usual = keep - 1, starts[-1] - starts[-2]
    while cut > 2 and {starts[cut] - starts[cut - 1], starts[cut - 1] - starts[cut - 2]} != {usual}:
        cut -= 1  # some tokens have a few requests more
    stop, go = r.at[starts[cut]], r.at[starts[-1]]
    changed.copy(done, stop)
    later = {i for begins, i in r.events[go:] if not begins and starts[cut] <= i < starts[-1]}
    stands = {}
    for i in sorted(later):
        token = max(t for t in range(cut, len(starts) - 1) if starts[t] <= i)
        twin = starts[token - last + cut - 1] + i - starts[token]
        if twin not in changed.live:
            sys.exit(f"generation.py: allocation {i} outlives its generation, and allocation {twin}, its like, does not")
        stands[i] = twin
    time = r.times[go]
    for begins, i in r.events[stop:go]:
        if not begins and i in changed.live and i not in stands.values():
            changed.free(i, time)
    for i, twin in stands.items():
        changed.live[i] = changed.live.pop(twin)
    return go, cut + 1


def lengthen(changed, starts, more, done):
    """Repeat the last token whose end is known `more` times."""
    r, first, end = changed.recording, starts[-2], starts[-1]
    period = end - first
    stop = r.at[end]
    changed.copy(done, stop)
    token = r.events[r.at[first] : stop]
    time = r.times[stop]
    for n in range(1, more + 1):
        for begins, i in token:
            if begins:
                grows = r.sizes[i] - r.sizes[i - period]
                changed.allocate((i, n), r.sizes[i] + n * (grows if abs(grows) < r.sizes[i] else 0), time)
            elif i >= first:
                changed.free((i, n), time)
            elif i >= first - period:
                changed.free((i + period, n - 1) if n > 1 else i + period, time)
    for block in [b for b in changed.live if isinstance(b, tuple)]:
        changed.live[block[0]] = changed.live.pop(block)
    return stop


def numbers(text):
    """The numbers of a list with commas; argparse reports what is none."""
    return [int(n) for n in text.split(",")]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("snapshot")
    args.add_argument("out")
    args.add_argument("--marker", type=int, required=True)
    args.add_argument("--tokens", required=True, type=numbers)
    args.add_argument("--per", type=int, help="tokens of each recorded generation, if there are to be more of these")
    options = args.parse_args()
    wanted = options.tokens
    if min(wanted) < 2:
        args.error(f"--tokens: a generation of {min(wanted)}, expected 2 or more")
    if options.per is not None and options.per < 4:
        args.error(f"--per: {options.per}, expected 4 or more")
    try:
        r = Recording(options.snapshot)
    except (OSError, KeyError, pickle.UnpicklingError) as e:
        sys.exit(f"generation.py: {options.snapshot}: expected a gzipped memory snapshot: {e!r}")
    marks = [i for i, size in enumerate(r.sizes) if size == options.marker]
    if options.per is not None and 3 <= len(marks) // options.per < len(wanted):
        starts = marks[:: options.per]
        r.repeat(starts, len(wanted) - len(starts))
        marks = [i for i, size in enumerate(r.sizes) if size == options.marker]
    per, odd = divmod(len(marks), len(wanted))
    if odd or per < 4:
        sys.exit(f"generation.py: {len(marks)} requests of {options.marker} B, expected as many for each of {len(wanted)} generations, and 4 or more")
    steps = [b - a for a, b in zip(marks, marks[1:])]
    between = [steps[n] for n in range(per - 1, len(steps), per)]
    if between and min(between) <= max(steps[n] for n in range(len(steps)) if (n + 1) % per):
        sys.exit(f"generation.py: {len(wanted)} generations of {per} tokens each are not what was recorded: two are as near as two tokens")
    changed, done, made = Changed(r), 0, []
    for n, tokens in enumerate(wanted):
        starts = marks[n * per : (n + 1) * per]
        if tokens < per:
            done, tokens = shorten(changed, starts, tokens, done)
        elif tokens > per:
            done = lengthen(changed, starts, tokens - per, done)
        made.append(tokens)
    changed.copy(done, len(r.events))
    snapshot = dict(r.snapshot, device_traces=[changed.trace()], segments=[])
    with gzip.open(options.out, "wb", compresslevel=1) as f:
        pickle.dump(snapshot, f, protocol=4)
    print(f"{options.out}: generations of {', '.join(map(str, made))} tokens, {len(changed.sizes):,} allocations")


if __name__ == "__main__":
    main()
