package show

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is aligned text: a head, then rows. Another table may follow below.
type Table struct {
	head []string
	rows [][]string
	// notes are paragraphs below a row, by its place.
	notes map[int][]string
	// title stands above the table below.
	title string
	below *Table
}

// columnGap stands between columns.
const columnGap = "  "

func table(head ...string) *Table { return &Table{head: head} }

// more adds columns to a table without rows if it is wide.
func (t *Table) more(wide bool, head ...string) *Table {
	if wide {
		t.head = append(t.head, head...)
	}
	return t
}

// add adds a row. It leaves out cells that have no column; columns without a cell are
// empty.
func (t *Table) add(cells ...string) {
	row := make([]string, len(t.head))
	copy(row, cells)
	t.rows = append(t.rows, row)
}

// note puts paragraphs below the last row.
func (t *Table) note(texts ...string) {
	if t.notes == nil {
		t.notes = map[int][]string{}
	}
	t.notes[len(t.rows)-1] = texts
}

// above puts a table below this one, under a title.
func (t *Table) above(title string, below *Table) *Table {
	t.title, t.below = title, below
	return t
}

// Empty says whether there are no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// WriteTo writes the table, each line ended and without blanks at its end. An
// empty table is nothing at all.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	text := t.text("")
	if t.below != nil && !t.below.Empty() {
		if text != "" {
			text += "\n"
		}
		text += t.title + "\n" + t.below.text("")
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}

// text renders the table with each line indented.
func (t *Table) text(indent string) string {
	if t.Empty() {
		return ""
	}
	widths := make([]int, len(t.head))
	lines := append([][]string{t.head}, t.rows...)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(orDash(cell)))
		}
	}
	var b strings.Builder
	for at, line := range lines {
		var row strings.Builder
		row.WriteString(indent)
		for i, cell := range line {
			cell = orDash(cell)
			row.WriteString(cell)
			row.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			row.WriteString(columnGap)
		}
		b.WriteString(strings.TrimRight(row.String(), " "))
		b.WriteByte('\n')
		for _, note := range t.notes[at-1] {
			b.WriteString(indented(indent+columnGap, note))
		}
	}
	return b.String()
}

// orDash keeps columns countable by tools that split at blanks. Text of others
// never breaks a line.
func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return oneLine(cell)
}

// oneLine puts a space for each control character.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
