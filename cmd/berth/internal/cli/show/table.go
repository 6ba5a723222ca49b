package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
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

// Style is how a table is shown.
type Style struct {
	// Width is the maximum width of lines; 0 means any width.
	Width int
	// Cut reports whether lines that are too wide are cut at the right. Otherwise the widest columns
	// are narrowed.
	Cut bool
	// Color reports whether states have colors.
	Color bool
}

// String returns the lines of the table without trailing spaces. It returns an empty
// string if the table has no rows.
func (t *Table) String() string { return t.Styled(Style{}) }

// Styled returns the lines of the table in a style.
func (t *Table) Styled(style Style) string {
	text := t.lines("", style)
	if t.below != nil && !t.below.Empty() {
		if text != "" {
			text += "\n"
		}
		text += cut(t.title, style.Width) + "\n" + t.below.lines("", style)
	}
	return text
}

// text renders the table with an indent before each line.
func (t *Table) text(indent string) string { return t.lines(indent, Style{}) }

func (t *Table) lines(indent string, style Style) string {
	if t.Empty() {
		return ""
	}
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cmp.Or(oneLine(cell), emptyCell)))
		}
	}
	limit := style.Width
	if limit > 0 {
		limit = max(limit-len(indent), 1)
		if style.Cut {
			widths = crop(widths, limit)
		} else {
			widths = fit(widths, limit)
		}
	}
	var b strings.Builder
	for at, row := range all {
		line := indent
		for i, width := range widths {
			cell := cut(cmp.Or(oneLine(row[i]), emptyCell), width)
			padding := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if style.Color && at > 0 && (t.head[i] == "STATE" || t.head[i] == "CURRENT" || t.head[i] == "ROLE") {
				cell = painted(cell)
			}
			if i < len(widths)-1 {
				padding += columnGap
			}
			line += cell + padding
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, note := range t.notes[at-1] {
			b.WriteString(indented(indent+columnGap, note, style.Width))
		}
	}
	return b.String()
}

// minCell is the width below which fit does not narrow a column.
const minCell = 8

// fit narrows the widest columns until a line is not longer than the limit. If all columns
// are narrow, it drops columns at the right.
func fit(widths []int, limit int) []int {
	for {
		total := len(columnGap) * (len(widths) - 1)
		widest := 0
		for i, width := range widths {
			total += width
			if width > widths[widest] {
				widest = i
			}
		}
		switch {
		case total <= limit:
			return widths
		case widths[widest] > minCell:
			widths[widest]--
		case len(widths) > 1:
			widths = widths[:len(widths)-1]
		default:
			return []int{limit}
		}
	}
}

// crop drops the columns that begin behind the limit, and narrows the last of the others.
func crop(widths []int, limit int) []int {
	used := 0
	for i, width := range widths {
		if used+width > limit {
			if left := limit - used; i == 0 || left > len(columnGap) {
				return append(slices.Clone(widths[:i]), left)
			}
			return widths[:i]
		}
		used += width + len(columnGap)
	}
	return widths
}

// cut shortens a text to a width. A width of 0 or less means any width.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Screen returns the text that fits a terminal without a wrapped or scrolled line. Text
// without colors is cut to the width. If lines are missing at the end, the last line has
// their number.
func Screen(text string, style Style, height int) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if height > 1 && len(lines) >= height { // the cursor needs a line
		lines = append(lines[:height-2:height-2], fmt.Sprintf("… %d more lines", len(lines)-height+2))
	}
	for i, line := range lines {
		if !strings.Contains(line, "\x1b") {
			lines[i] = cut(line, style.Width)
		}
	}
	return lines
}

// The colors of states.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	normal = "\x1b[0m"
)

// colors has the color of each state that has one. States that need no attention have none.
var colors = map[string]string{
	"READY": green, "RUNNING": green, "ACTIVE": green, "COMPLETED": green, "LEADER": green,
	"REGISTERED": yellow, "QUEUED": yellow, "LEASING": yellow, "ASSIGNING": yellow, "HELD": yellow, "OFFERING": yellow,
	"CANCELLING": yellow,
	"PLANNED":    yellow, "ABANDONED": yellow, "DESTROYING": yellow,
	"ASSIGNED": yellow, "STARTING": yellow, "EVICT": yellow, "EVICTING": yellow,
	"READY,DRAINING": yellow, "READY,DRAINED": yellow, "READY,DISABLED": yellow,
	"ACTIVE,FAILED": yellow, "ACTIVE,LOST": yellow, "COMPLETED,EVICTED": yellow,
	"COMPLETED,FAILED": red, "COMPLETED,LOST": red,
	"UNREACHABLE": red, "LOST": red, "FAILED": red, "EXPIRED": red, noLeader: red, noAnswer: red,
}

// painted returns a state in its color.
func painted(state string) string {
	if color := colors[state]; color != "" {
		return color + state + normal
	}
	return state
}

// oneLine replaces each control character with a space.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
