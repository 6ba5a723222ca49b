package bench

import (
	"fmt"
	"io"
	"strings"

	"berth.dev/pkg/model"
)

// costKinds are the columns of the table of costs.
var costKinds = []struct{ kind, title string }{
	{"etcd", "etcd"}, {model.ServiceRegistry, "reg."}, {model.ServiceExecutorState, "ex-st."}, {model.ServiceAssigner, "assig."},
	{model.ServiceGateway, "gatew."}, {kindSim, "sim"}, {kindLoad, "load"},
}

// writeKinds are the columns of the table of writes.
var writeKinds = []string{writesTxn, writesReservation, writesStage, writesLease, writesTask, writesEvent, writesOther}

// write prints a result for people, in at most 80 columns.
func (r *Result) write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s\n", r.Workload, r.Shows)
	fmt.Fprintf(&b, "  %-28s %2s %6s %7s %7s %7s %7s %6s\n", "", "", "n", "median", "p99", "min", "max", "ratio")
	for _, f := range r.Figures {
		ratio := ""
		if f.Against != "" {
			ratio = number(f.Ratio)
		}
		if f.N == 0 {
			fmt.Fprintf(&b, "  %-28s %2s %6d\n", cut(f.Name, 28), f.Unit, 0)
		} else {
			fmt.Fprintf(&b, "  %-28s %2s %6d %7s %7s %7s %7s %6s\n", cut(f.Name, 28), f.Unit, f.N, number(f.Median), number(f.P99), number(f.Min), number(f.Max), ratio)
		}
		if f.Target != nil {
			word := "met"
			if !f.Target.Met {
				word = "MISSED"
			}
			fmt.Fprintf(&b, "      target: %s: %s\n", f.Target, word)
		}
	}
	r.writeCosts(&b)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "  %s\n", note)
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "  NOT AT ITS END: %s\n", r.Error)
	}
	for _, a := range r.Audits {
		fmt.Fprintf(&b, "  audit: %d violations in %d revisions, %d workers leased\n", a.Violations, a.Revision, a.WorkersLeased)
		for _, v := range a.First {
			fmt.Fprintf(&b, "    %s\n", v)
		}
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(out, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// phases adds up the repeats of each phase.
func (r *Result) phases() []Cost {
	var phases []Cost
	at := map[string]int{}
	for _, c := range r.Costs {
		i, known := at[c.Phase]
		if !known {
			i = len(phases)
			at[c.Phase] = i
			phases = append(phases, Cost{Phase: c.Phase, CPU: map[string]float64{}, Writes: map[string]int{}})
		}
		p := &phases[i]
		p.Others = (p.Others*p.Seconds + c.Others*c.Seconds) / (p.Seconds + c.Seconds)
		p.Operations += c.Operations
		p.Seconds += c.Seconds
		p.Bytes += c.Bytes
		for kind, used := range c.CPU {
			p.CPU[kind] += used
		}
		for kind, n := range c.Writes {
			p.Writes[kind] += n
		}
	}
	return phases
}

// writeCosts prints what an operation of each phase took.
func (r *Result) writeCosts(b *strings.Builder) {
	phases := r.phases()
	if len(phases) == 0 {
		return
	}
	fmt.Fprintf(b, "  %-22s", "processor ms each")
	for _, k := range costKinds {
		fmt.Fprintf(b, " %6s", k.title)
	}
	fmt.Fprintf(b, " %5s\n", "other")
	for _, p := range phases {
		fmt.Fprintf(b, "  %-22s", cut(p.Phase, 22))
		for _, k := range costKinds {
			text := "-"
			if used, seen := p.CPU[k.kind]; seen && p.Operations > 0 {
				text = number(1000 * used / float64(p.Operations))
			}
			fmt.Fprintf(b, " %6s", text)
		}
		fmt.Fprintf(b, " %5.2f\n", p.Others)
	}
	fmt.Fprintf(b, "  %-22s", "keys written each")
	for _, kind := range writeKinds {
		fmt.Fprintf(b, " %6s", kind)
	}
	fmt.Fprintf(b, " %5s\n", "kB")
	for _, p := range phases {
		if p.Operations == 0 || len(p.Writes) == 0 {
			continue
		}
		fmt.Fprintf(b, "  %-22s", cut(p.Phase, 22))
		for _, kind := range writeKinds {
			fmt.Fprintf(b, " %6s", number(float64(p.Writes[kind])/float64(p.Operations)))
		}
		fmt.Fprintf(b, " %5s\n", number(float64(p.Bytes)/1000/float64(p.Operations)))
	}
}

// number is a figure in at most six characters, with three digits that mean
// something where it has them.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return fmt.Sprintf("%.4f", v)
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	case v < 1e6:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1fM", v/1e6)
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
