package scenario

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "draw the picture of a trace again")

const (
	// drawnID is the trace of the reservation in the picture.
	drawnID = "4bf92f3577b34da6a3ce929d0e0e4736"
	// picture is the picture of that trace in docs/how-to/trace-requests.md.
	picture = "../../docs/plots/trace.svg"
)

// row matches the name of a row in the picture: the service and the span.
var row = regexp.MustCompile(`<title>([a-z-]+: [^<,]+),`)

func rowName(s span) string {
	return strings.TrimPrefix(s.service, "berth-") + ": " + s.GetName()
}

// checkPicture checks that a real trace has every span of the picture. With -rewrite it
// draws the picture from this trace.
func checkPicture(t *testing.T, c *collector) {
	t.Helper()
	text, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	rows := row.FindAllStringSubmatch(string(text), -1)
	if *rewrite {
		rows = nil
	} else if len(rows) < 15 {
		t.Fatalf("%s has only %d spans", picture, len(rows))
	}
	drawn := func(spans []span) []span {
		return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.trace() != drawnID })
	}
	spans := drawn(c.await(t, func(spans []span) string {
		seen := map[string]int{}
		for _, s := range drawn(spans) {
			seen[rowName(s)]++
		}
		for _, r := range rows {
			if seen[html.UnescapeString(r[1])] == 0 {
				return "the trace has no span " + r[1]
			}
		}
		// The last spans of each process.
		for _, last := range []struct {
			name  string
			count int
		}{
			{"gateway: HTTP PUT", 1}, {"gateway: berth.control.v1.Dispatch/CreateAssignmentTasks", 1},
			{"registry: reservation completed", 1}, {"executor-state: run scheduling cycle", 1},
			{"assigner: worker completed", 2}, {"agent: berth.control.v1.Executor/SubmitTask", 2},
		} {
			if seen[last.name] < last.count {
				return fmt.Sprintf("the trace has %d spans %s, want %d", seen[last.name], last.name, last.count)
			}
		}
		return ""
	}))
	if *rewrite {
		if err := os.WriteFile(picture, []byte(draw(spans)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const pictureHead = `<style>
  svg {
    --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #e4e8ec;
    --c0: #0072b2; --c1: #c4500b; --c2: #007a5a; --c3: #a8437f; --c4: #8a6500;
  }
  @media (prefers-color-scheme: dark) {
    svg {
      --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #2a313a;
      --c0: #58b4f0; --c1: #ff9e5e; --c2: #3fcf9f; --c3: #f09bcb; --c4: #e8c14f;
    }
  }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
  .soft { fill: var(--soft); }
  .grid { stroke: var(--grid); stroke-width: 1; }
  .c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); }
  .c3 { --c: var(--c3); } .c4 { --c: var(--c4); }
  rect { fill: var(--c); }
  rect.step, .step rect { fill-opacity: .35; stroke: var(--c); }
</style>
`

// draw draws the spans of a trace in the order of their start, as an SVG file.
func draw(spans []span) string {
	const (
		names, width, line, top = 330, 860, 20, 62
		times                   = width - names - 75
	)
	slices.SortStableFunc(spans, func(a, b span) int {
		// A span that lasts longer comes first, because it contains the other.
		return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()),
			cmp.Compare(b.GetEndTimeUnixNano(), a.GetEndTimeUnixNano()))
	})
	begin, end := spans[0].GetStartTimeUnixNano(), uint64(0)
	for _, s := range spans {
		end = max(end, s.GetEndTimeUnixNano())
	}
	x := func(at uint64) float64 { return names + float64(at-begin)/float64(end-begin)*times }
	height := top + line*len(spans) + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" `+
		`aria-label="The spans of one reservation in all services, over time">`+"\n", width, height, height)
	b.WriteString(pictureHead)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" style="fill: var(--paper)"/>`+"\n", width, height)
	services := []string{"gateway", "registry", "executor-state", "assigner", "agent"}
	for i, service := range services {
		fmt.Fprintf(&b, `<rect class="c%d" x="%d" y="14" width="12" height="12" rx="2"/><text x="%d" y="24">%s</text>`+"\n",
			i, 12+118*i, 30+118*i, service)
	}
	fmt.Fprintf(&b, `<rect class="c0 step" x="%d" y="14" width="12" height="12" rx="2"/><text x="%d" y="24">a step, ended by a job event</text>`+"\n",
		12+118*len(services), 30+118*len(services))
	for _, tick := range ticks(time.Duration(end - begin)) {
		at := x(begin + uint64(tick))
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, top-6, height-10)
		fmt.Fprintf(&b, `<text class="soft" x="%.1f" y="%d" text-anchor="middle">%d ms</text>`+"\n", at, top-12, tick.Milliseconds())
	}
	for i, s := range spans {
		service := strings.TrimPrefix(s.service, "berth-")
		kind := fmt.Sprintf("c%d", slices.Index(services, service))
		if s.attributes["berth.event"] != "" {
			kind += " step"
		}
		from, to := x(s.GetStartTimeUnixNano()), x(s.GetEndTimeUnixNano())
		took := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())
		short := strings.NewReplacer("berth.v1.", "", "berth.control.v1.", "").Replace(s.GetName())
		y := top + line*i
		fmt.Fprintf(&b, `<g class="%s"><title>%s, %s</title><text x="12" y="%d">%s</text>`,
			kind, html.EscapeString(rowName(s)), took.Round(100*time.Microsecond), y+12, html.EscapeString(short))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/><text class="soft" x="%.1f" y="%d">%.1f ms</text></g>`+"\n",
			from, y, max(to-from, 2), line-4, to+6, y+12, took.Seconds()*1000)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// ticks returns round times from 0 to the end of a trace, about six of them.
func ticks(total time.Duration) []time.Duration {
	step := time.Millisecond
	for _, factor := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500} {
		if total/step > 6 {
			step = factor * time.Millisecond
		}
	}
	var list []time.Duration
	for at := time.Duration(0); at <= total; at += step {
		list = append(list, at)
	}
	return list
}
