package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"berth.dev/pkg/model"
)

// costKinds are the columns of the table of processor times.
var costKinds = []struct{ kind, title string }{
	{"etcd", "etcd"}, {model.ServiceRegistry, "reg."}, {model.ServiceExecutorState, "ex-st."},
	{model.ServiceAssigner, "assig."}, {model.ServiceGateway, "gatew."}, {kindSim, "sim"},
	{kindLoad, "load"},
}

// writeKinds are the columns of the table of written keys.
var writeKinds = []string{writesTxn, writesReservation, writesStage, writesLease, writesTask, writesEvent, writesOther}

// write prints a result in at most 80 columns.
func (r *Result) write(out io.Writer) error {
	var targets [][]string
	for _, f := range r.Figures {
		if f.Target != nil {
			targets = append(targets, []string{f.Name, f.Target.String(), f.Target.verdict()})
		}
	}
	processors, keys := r.costs()
	if len(processors) > 0 {
		for i, k := range costKinds {
			processors[0][i+1] = k.title
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "\n%s: %s\n", r.Workload, r.Shows)
	for _, table := range []struct {
		rows  [][]string
		width int // of the first column
	}{{r.figures(), 28}, {targets, 28}, {processors, 22}, {keys, 22}} {
		if len(table.rows) == 0 {
			continue
		}
		for _, row := range table.rows {
			row[0] = cut(row[0], table.width)
			fmt.Fprintf(w, "  %s\n", strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
		fmt.Fprintln(w) // ends the columns of the table
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "  FAILED: %s\n", r.Error)
	}
	for _, a := range r.Audits {
		fmt.Fprintf(w, "  audit: %d violations in %d revisions, %d workers leased\n", a.Violations, a.Revision,
			a.WorkersLeased)
		for _, v := range a.First {
			fmt.Fprintf(w, "    %s\n", v)
		}
	}
	return w.Flush()
}

// figures returns the rows of the table of figures. The first row is the header.
func (r *Result) figures() [][]string {
	rows := [][]string{{"figure", "unit", "n", "median", "p99", "min", "max", "ratio"}}
	for _, f := range r.Figures {
		row := []string{f.Name, f.Unit, fmt.Sprint(f.N), number(f.Median), number(f.P99), number(f.Min), number(f.Max), ""}
		if f.N == 0 {
			clear(row[3:])
		} else if f.Against != "" {
			row[7] = number(f.Ratio)
		}
		rows = append(rows, row)
	}
	return rows
}

// phases returns the cost of each phase, summed over its repeats.
func (r *Result) phases() []*Cost {
	var phases []*Cost
	byName := map[string]*Cost{}
	for _, c := range r.Costs {
		p := byName[c.Phase]
		if p == nil {
			p = &Cost{Phase: c.Phase, CPU: map[string]float64{}, Writes: map[string]int{}}
			byName[c.Phase] = p
			phases = append(phases, p)
		}
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

// costs returns the rows of two tables: the processor time and the written keys per
// operation. The first row of each table is the header. Both tables are empty if no phase
// had operations.
func (r *Result) costs() (processors, keys [][]string) {
	head := []string{"processor ms each"}
	for _, k := range costKinds {
		head = append(head, k.kind)
	}
	processors = [][]string{append(head, "other")}
	keys = [][]string{slices.Concat([]string{"keys written each"}, writeKinds, []string{"kB"})}
	for _, p := range r.phases() {
		if p.Operations == 0 {
			continue
		}
		each := func(v float64) string { return number(v / float64(p.Operations)) }
		row := []string{p.Phase}
		for _, k := range costKinds {
			text := "-"
			if used, seen := p.CPU[k.kind]; seen {
				text = each(1000 * used)
			}
			row = append(row, text)
		}
		processors = append(processors, append(row, fmt.Sprintf("%.2f", p.Others)))
		row = []string{p.Phase}
		for _, kind := range writeKinds {
			row = append(row, each(float64(p.Writes[kind])))
		}
		keys = append(keys, append(row, each(float64(p.Bytes)/1000)))
	}
	if len(keys) == 1 {
		return nil, nil
	}
	return processors, keys
}

// number formats a value with about three significant digits in at most six characters. It
// never drops digits before the decimal point, except that millions get the unit M.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	}
	decimals := 0
	for _, limit := range []float64{100, 10, 1, 0.01} {
		if v < limit {
			decimals++
		}
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
