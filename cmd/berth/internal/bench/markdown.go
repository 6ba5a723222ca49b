package bench

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"berth.dev/api/fault"
)

// insert replaces the lines of a document between beginMark and endMark.
const (
	beginMark = "<!-- berth bench: begin -->"
	endMark   = "<!-- berth bench: end -->"
)

// insert replaces the text between the marks of a file.
func insert(file string, text []byte) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "--markdown: cannot read %s", file).Because(err)
	}
	before, rest, begun := bytes.Cut(old, []byte(beginMark+"\n"))
	_, after, ended := bytes.Cut(rest, []byte(endMark+"\n"))
	if !begun || !ended {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s must have the lines %s and %s, in this order", file,
			beginMark, endMark)
	}
	all := [][]byte{before, []byte(beginMark + "\n\n"), text, []byte("\n" + endMark + "\n"), after}
	if err := os.WriteFile(file, bytes.Join(all, nil), 0o644); err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "--markdown: cannot write %s", file).Because(err)
	}
	return nil
}

// markdown returns the report as Markdown.
func (r *Report) markdown() []byte {
	var b bytes.Buffer
	seconds := 0.0
	targets := [][]string{{"workload", "figure", "target", "measured", "verdict"}}
	for _, result := range r.Results {
		seconds += result.Seconds
		for _, f := range result.Figures {
			if f.Target != nil {
				targets = append(targets, []string{"`" + result.Workload + "`", f.Name, f.Target.String(), f.measured(),
					f.Target.verdict()})
			}
		}
	}
	fmt.Fprintf(&b, "Measured %s with `berth bench` of version %s: replicas of each service %d, windows %s, repeats %d",
		r.Began.UTC().Format("2006-01-02 15:04 MST"), r.Version, r.Replicas, r.Window, r.Repeats)
	if r.Scale != 1 {
		fmt.Fprintf(&b, ", **sizes times %g**", r.Scale)
	}
	fmt.Fprintf(&b, "; %.0f minutes in all.\n\nMachine: %s.\n\n### Targets\n\n", seconds/60, r.Machine)
	markdown(&b, targets)
	for _, result := range r.Results {
		result.markdown(&b)
	}
	return b.Bytes()
}

// markdown writes a table. The first row is the header.
func markdown(b *bytes.Buffer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

// measured describes the measured values of the figure, for comparison with its target.
func (f *Figure) measured() string {
	if f.N == 0 {
		return "not measured"
	}
	text := strings.TrimSpace(fmt.Sprintf("median %s, p99 %s, max %s %s", number(f.Median), number(f.P99), number(f.Max),
		f.Unit))
	if f.Against != "" {
		text += ", ratio " + number(f.Ratio)
	}
	return text
}

// markdown writes the figures, costs and audits of a workload.
func (r *Result) markdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### `%s`: %s\n\n", r.Workload, r.Shows)
	figures := r.figures()
	figures[0] = append(figures[0], "baseline")
	for i, f := range r.Figures {
		figures[i+1] = append(figures[i+1], f.Against)
	}
	markdown(b, figures)
	if processors, keys := r.costs(); len(keys) > 0 {
		fmt.Fprint(b, "\n<details><summary>Processor time (ms) and keys written per operation</summary>\n\n")
		markdown(b, processors)
		fmt.Fprintln(b)
		markdown(b, keys)
		fmt.Fprint(b, "\n</details>\n\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "- %s\n", strings.TrimSpace(note))
	}
	if r.Error != "" {
		fmt.Fprintf(b, "\n**Failed**: %s\n", r.Error)
	}
	fmt.Fprintln(b)
	for _, a := range r.Audits {
		fmt.Fprintf(b, "Audit: %d violations up to revision %d, %d workers leased, %d of them ever running.\n", a.Violations,
			a.Revision, a.WorkersLeased, a.WorkersRunning)
	}
}
