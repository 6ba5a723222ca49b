package replay

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	barWidth = 30
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
		fmt.Fprintf(b.out, "\r\x1b[K%s", p)
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
	share := 1.0
	if p.Actions > 0 {
		share = float64(p.Done) / float64(p.Actions)
	}
	full := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%  %d/%d asked  %d granted  %d waiting  %d cancelled  %d running  %d violations",
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), share*100,
		p.Done, p.Actions, p.Granted, p.Waiting, p.Cancelled, p.Running, p.Violations)
}
