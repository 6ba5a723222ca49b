package replay

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// lineWidth is the widest line that a terminal of 80 columns does not wrap; a
	// wrapped one is not drawn over.
	lineWidth = 79
	barWidth  = 30
	// shortBar leaves room in a line for numbers of six digits.
	shortBar = 8
	// plainEvery is the time between two lines where nothing can be drawn over.
	plainEvery = 5 * time.Second
)

// bar draws the progress: in place on a terminal, and line by line elsewhere.
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
		line := p.short()
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

func (p Progress) String() string {
	return fmt.Sprintf("%s  %d/%d asked  %d granted  %d waiting  %d cancelled  %d running  %d violations",
		p.bar(barWidth), p.Done, p.Actions, p.Granted, p.Waiting, p.Cancelled, p.Running, p.Violations)
}

// short is what fits a line of a terminal. Violations come first, so that they
// are seen however large the numbers are.
func (p Progress) short() string {
	return fmt.Sprintf("%s  %d violations  %d granted  %d waiting  %d running",
		p.bar(shortBar), p.Violations, p.Granted, p.Waiting, p.Running)
}

// bar draws how much is done, with the percentage behind.
func (p Progress) bar(width int) string {
	share := 1.0
	if p.Actions > 0 {
		share = float64(p.Done) / float64(p.Actions)
	}
	full := int(share * float64(width))
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", width-full), share*100)
}
