package replay

import (
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// lineWidth is the widest line that a terminal of 80 columns does not wrap; a
	// wrapped one is not drawn over.
	lineWidth = 79
	// plainEvery is the time between two lines where nothing can be drawn over.
	plainEvery = 5 * time.Second
)

// bar writes the progress: in place on a terminal, and line by line elsewhere.
type bar struct {
	out      io.Writer
	terminal bool
	last     time.Time
}

// newBar draws on a stream; only a file can be a terminal.
func newBar(out io.Writer) *bar {
	b := &bar{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		b.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return b
}

// show draws how far the run has come. Elsewhere than on a terminal it keeps
// quiet while little time has passed.
func (b *bar) show(p Progress, now time.Time) {
	switch {
	case b.terminal:
		line := p.String()
		fmt.Fprintf(b.out, "\r\x1b[K%s", line[:min(len(line), lineWidth)])
	case now.Sub(b.last) >= plainEvery:
		b.last = now
		fmt.Fprintln(b.out, p)
	}
}

// end leaves the last picture standing.
func (b *bar) end() {
	if b.terminal {
		fmt.Fprintln(b.out)
	}
}

// String puts violations first, so that they are seen however large the numbers are.
func (p Progress) String() string {
	percent := 100 * float64(p.Done) / float64(max(1, p.Actions))
	return fmt.Sprintf("%3.0f%%  %d violations  %d/%d requested  %d granted  %d waiting  %d cancelled  %d running",
		percent, p.Violations, p.Done, p.Actions, p.Granted, p.Waiting, p.Cancelled, p.Running)
}
