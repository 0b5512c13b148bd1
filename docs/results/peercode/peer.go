package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/stplan/stplan/internal/baseline"
	"github.com/stplan/stplan/internal/trace"
)

// peer is a Model whose answers come from the peer's own code, a process that native/serve.cpp
// drives.
type peer struct {
	process *exec.Cmd
	to      *bufio.Writer
	in      io.Closer
	from    *bufio.Reader
	stats   baseline.Stats
	live    map[int32]bool // served and not freed
	freed   int32          // freed by the last call, -1 if that was another
	printed tail
	err     error
}

// tail keeps the end of what is written to it, 2 KiB, enough for an error message.
type tail struct{ bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	n, err := t.Buffer.Write(b)
	if over := t.Len() - 2048; over > 0 {
		t.Next(over)
	}
	return n, err
}

// startPeer starts the peer's code. environment is added to this process's.
func startPeer(binary string, environment []string) (*peer, error) {
	p := &peer{process: exec.Command(binary), live: make(map[int32]bool), freed: -1}
	p.process.Env = append(os.Environ(), environment...)
	p.process.Stderr = &p.printed
	in, err := p.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.to, p.from = in, bufio.NewWriter(in), bufio.NewReader(out)
	return p, p.process.Start()
}

// stop ends the process, and says what went wrong with it, if anything did.
func (p *peer) stop() error {
	p.settle()
	_ = p.to.Flush() // if the process is gone, Wait says why
	_ = p.in.Close()
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, p.printed.String())
	}
	return p.err
}

func (p *peer) say(format string, values ...any) {
	if _, err := fmt.Fprintf(p.to, format+"\n", values...); err != nil {
		p.fail(err)
	}
}

func (p *peer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// ask says something that is answered, and notes the answer.
func (p *peer) ask(format string, values ...any) (addr uint64) {
	p.say(format, values...)
	if p.err != nil {
		return 0
	}
	if err := p.to.Flush(); err != nil {
		p.fail(err)
		return 0
	}
	line, err := p.from.ReadString('\n')
	if err == nil {
		s := &p.stats
		_, err = fmt.Sscan(strings.TrimSpace(line), (*int64)(&s.Reserved), (*int64)(&s.PeakReserved), (*int64)(&s.Allocated), &addr)
	}
	if err != nil {
		p.fail(fmt.Errorf("no answer to %q: %w", fmt.Sprintf(format, values...), err))
	}
	return addr
}

// layOut tells the simulated device the addresses that package baseline's has: a recorded
// one for each segment of a recorded size, and others below.
func (p *peer) layOut(d *trace.Device, rising bool) {
	const spaces = uint64(1) << 63
	lowest := spaces
	for i := range d.Events {
		if e := &d.Events[i]; e.Action == trace.ActionSegmentAlloc {
			p.say("s %d %d", e.Size, e.Addr)
			lowest = min(lowest, e.Addr)
		}
	}
	up := 0
	if rising {
		up = 1
	}
	p.say("d %d %d %d", lowest, spaces, up)
}

func (p *peer) Stats() baseline.Stats { return p.stats }

func (p *peer) Alloc(buffer int32, r baseline.Request) bool {
	p.settle()
	if r.Pool != (trace.PoolID{}) {
		p.fail(fmt.Errorf("buffer %d is of a private pool, which the driver does not know", buffer))
	}
	if p.ask("a %d %d %d", buffer, max(r.Size, 1), r.Stream) == 0 {
		return false
	}
	p.live[buffer] = true
	return true
}

func (p *peer) Refuse(buffer int32, r baseline.Request) {
	p.settle()
	p.ask("r %d %d %d", buffer, max(r.Size, 1), r.Stream)
}

// Free waits for the next call: only that shows whether a stream still uses the buffer.
func (p *peer) Free(buffer int32) {
	p.settle()
	if p.live[buffer] {
		delete(p.live, buffer)
		p.freed = buffer
	}
}

func (p *peer) Complete(buffer int32) {
	if p.freed == buffer {
		p.freed = -1
		p.say("f %d", buffer)
		return
	}
	p.settle()
	p.say("c %d", buffer)
}

// settle makes the last free, if any, one of a buffer that a stream still uses.
func (p *peer) settle() {
	if p.freed >= 0 {
		p.say("p %d", p.freed)
		p.freed = -1
	}
}

func (p *peer) EmptyCache([]trace.PoolID) {
	p.settle()
	p.ask("e")
}
