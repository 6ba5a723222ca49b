package bench

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"berth.dev/api/fault"
)

// The lines between which a report is inserted into a document.
const (
	beginMark = "<!-- berth bench: begin -->"
	endMark   = "<!-- berth bench: end -->"
)

// insert replaces what stands between the marks of a file.
func insert(file string, text []byte) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s cannot be read", file).Because(err)
	}
	before, rest, begun := bytes.Cut(old, []byte(beginMark+"\n"))
	_, after, ended := bytes.Cut(rest, []byte(endMark+"\n"))
	if !begun || !ended {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s has not the lines %s and %s", file, beginMark, endMark)
	}
	all := [][]byte{before, []byte(beginMark + "\n\n"), text, []byte("\n" + endMark + "\n"), after}
	if err := os.WriteFile(file, bytes.Join(all, nil), 0o644); err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s cannot be written", file).Because(err)
	}
	return nil
}

// markdown is the report as documents show it.
func (r *Report) markdown() []byte {
	var b bytes.Buffer
	seconds := 0.0
	for _, result := range r.Results {
		seconds += result.Seconds
	}
	fmt.Fprintf(&b, "Measured %s with `berth bench` of version %s: replicas of each service %d, windows %s, repeats %d", r.Began.UTC().Format("2006-01-02 15:04 MST"), r.Version, r.Replicas, r.Window, r.Repeats)
	if r.Scale != 1 {
		fmt.Fprintf(&b, ", **sizes times %g**", r.Scale)
	}
	fmt.Fprintf(&b, "; %.0f minutes in all.\n\nMachine: %s.\n", seconds/60, r.Machine)
	r.summary(&b)
	for _, result := range r.Results {
		result.markdown(&b)
	}
	return b.Bytes()
}

// summary is the targets alone.
func (r *Report) summary(b *bytes.Buffer) {
	fmt.Fprint(b, "\n### Targets\n\n| workload | figure | target | measured | |\n|---|---|---|---|---|\n")
	for _, result := range r.Results {
		for _, f := range result.Figures {
			if f.Target != nil {
				fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", result.Workload, f.Name, f.Target, f.measured(), f.Target.word())
			}
		}
	}
}

// measured is the part of a figure that its target is about.
func (f *Figure) measured() string {
	if f.N == 0 {
		return "not measured"
	}
	t := f.Target
	var parts []string
	switch t.Of {
	case Median:
		parts = append(parts, number(f.Median)+unit(f.Unit))
	case P99:
		parts = append(parts, number(f.P99)+unit(f.Unit))
	case Ratio:
		parts = append(parts, fmt.Sprintf("%s (%s%s)", number(f.Ratio), number(f.Median), unit(f.Unit)))
	}
	if t.P99 != nil {
		parts = append(parts, "p99 "+number(f.P99)+unit(f.Unit))
	}
	if t.Max != nil {
		parts = append(parts, "max "+number(f.Max)+unit(f.Unit))
	}
	return strings.Join(parts, ", ")
}

// unit is a unit as it follows a number.
func unit(u string) string {
	if u == "" || strings.HasPrefix(u, "/") {
		return u
	}
	return " " + u
}

func (t *Target) word() string {
	if t.Met {
		return "met"
	}
	return "**missed**"
}

// markdown is one workload: what was measured, what it took, and what the audit
// said.
func (r *Result) markdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### `%s`: %s\n", r.Workload, r.Shows)
	if len(r.Figures) > 0 {
		fmt.Fprint(b, "\n| figure | unit | n | median | p99 | min | max | ratio | baseline |\n|---|---|---|---|---|---|---|---|---|\n")
	}
	for _, f := range r.Figures {
		if f.N == 0 {
			fmt.Fprintf(b, "| %s | %s | 0 | | | | | | |\n", f.Name, f.Unit)
			continue
		}
		ratio := ""
		if f.Against != "" {
			ratio = number(f.Ratio)
		}
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s | %s | %s | %s |\n",
			f.Name, f.Unit, f.N, number(f.Median), number(f.P99), number(f.Min), number(f.Max), ratio, f.Against)
	}
	r.costsMarkdown(b)
	if len(r.Notes) > 0 {
		fmt.Fprintln(b)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "- %s\n", strings.TrimSpace(note))
	}
	if r.Error != "" {
		fmt.Fprintf(b, "\n**Not at its end**: %s\n", r.Error)
	}
	for i, a := range r.Audits {
		if i == 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, "Audit: %d violations up to revision %d, %d workers leased, %d of them ever running.\n", a.Violations, a.Revision, a.WorkersLeased, a.WorkersRunning)
	}
}

// costsMarkdown is what an operation of each phase took.
func (r *Result) costsMarkdown(b *bytes.Buffer) {
	phases := r.phases()
	if len(phases) == 0 {
		return
	}
	fmt.Fprint(b, "\n<details><summary>Processor time (ms) and keys written, each</summary>\n\n| phase |")
	for _, k := range costKinds {
		fmt.Fprintf(b, " %s |", k.kind)
	}
	for _, kind := range writeKinds {
		fmt.Fprintf(b, " %s |", kind)
	}
	fmt.Fprintf(b, " kB | other processors |\n|---|%s\n", strings.Repeat("---|", len(costKinds)+len(writeKinds)+2))
	for _, p := range phases {
		if p.Operations == 0 {
			continue
		}
		each := func(v float64) string { return number(v / float64(p.Operations)) }
		fmt.Fprintf(b, "| %s |", p.Phase)
		for _, k := range costKinds {
			text := ""
			if used, seen := p.CPU[k.kind]; seen {
				text = each(1000 * used)
			}
			fmt.Fprintf(b, " %s |", text)
		}
		for _, kind := range writeKinds {
			fmt.Fprintf(b, " %s |", each(float64(p.Writes[kind])))
		}
		fmt.Fprintf(b, " %s | %.2f |\n", each(float64(p.Bytes)/1000), p.Others)
	}
	fmt.Fprint(b, "\n</details>\n")
}
