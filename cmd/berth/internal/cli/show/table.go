package show

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table has a header and rows, which it aligns in columns. Another table may follow below.
type Table struct {
	head []string
	rows [][]string
	// notes has the paragraphs below each row, by the index of the row.
	notes map[int][]string
	// title is the line between the table and below, the second table.
	title string
	below *Table
}

const (
	// columnGap separates columns.
	columnGap = "  "
	// emptyCell is a dash, so that tools that split lines at spaces can count columns.
	emptyCell = "-"
)

func table(head ...string) *Table { return &Table{head: head} }

// more adds columns if the table is wide. It must be called before add.
func (t *Table) more(wide bool, head ...string) *Table {
	if wide {
		t.head = append(t.head, head...)
	}
	return t
}

// add adds a row. It drops cells for which the table has no column. If the row has fewer
// cells than the table has columns, the remaining columns stay empty.
func (t *Table) add(cells ...string) {
	row := make([]string, len(t.head))
	copy(row, cells)
	t.rows = append(t.rows, row)
}

// note adds paragraphs below the last row.
func (t *Table) note(texts ...string) {
	if t.notes == nil {
		t.notes = map[int][]string{}
	}
	t.notes[len(t.rows)-1] = texts
}

// above adds the table below, with a title, below the table t.
func (t *Table) above(title string, below *Table) *Table {
	t.title, t.below = title, below
	return t
}

// Empty reports whether the table has no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Names returns the first column of the table, one line for each name. It omits repeated
// names and the second table.
func (t *Table) Names() string {
	var b strings.Builder
	last := ""
	for _, row := range t.rows {
		if row[0] != "" && row[0] != last {
			b.WriteString(oneLine(row[0]) + "\n")
		}
		last = row[0]
	}
	return b.String()
}

// String returns the lines of the table without trailing spaces. It returns an empty
// string if the table has no rows.
func (t *Table) String() string {
	text := t.text("")
	if t.below != nil && !t.below.Empty() {
		if text != "" {
			text += "\n"
		}
		text += t.title + "\n" + t.below.text("")
	}
	return text
}

// text renders the table with an indent before each line.
func (t *Table) text(indent string) string {
	if t.Empty() {
		return ""
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, len(columnGap), ' ', 0)
	for _, line := range append([][]string{t.head}, t.rows...) {
		cells := make([]string, len(line))
		for i, cell := range line {
			cells[i] = cmp.Or(oneLine(cell), emptyCell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // cannot fail: a Builder returns no errors
	var b strings.Builder
	at := -1 // the header
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(indent + strings.TrimRight(line, " \n") + "\n")
		for _, note := range t.notes[at] {
			b.WriteString(indented(indent+columnGap, note))
		}
		at++
	}
	return b.String()
}

// oneLine replaces each control character with a space.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
