package replay

import (
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// lineWidth is the maximum width of a line. A terminal of 80 columns does not wrap
	// such a line. A wrapped line could not be overwritten.
	lineWidth = 79
	// plainEvery is the time between two lines if the output is not a terminal.
	plainEvery = 5 * time.Second
)

// bar writes the progress. On a terminal it overwrites the last line. Otherwise it adds
// lines.
type bar struct {
	out      io.Writer
	terminal bool
	last     time.Time
}

// newBar returns a bar that writes to a stream. Only a file can be a terminal.
func newBar(out io.Writer) *bar {
	b := &bar{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		b.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return b
}

// show writes the progress. If the output is not a terminal, show writes at most one line
// per plainEvery.
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

// end moves to a new line after the last progress.
func (b *bar) end() {
	if b.terminal {
		fmt.Fprintln(b.out)
	}
}

// String returns the progress as one line. The number of violations is near the
// beginning, so that it is visible if the line is cut.
func (p Progress) String() string {
	percent := 100 * float64(p.Done) / float64(max(1, p.Actions))
	return fmt.Sprintf("%3.0f%%  %d violations  %d/%d requested  %d granted  %d waiting  %d cancelled  %d running",
		percent, p.Violations, p.Done, p.Actions, p.Granted, p.Waiting, p.Cancelled, p.Running)
}
