package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"berth.dev/api/fault"
)

// table reads one file of a trace row by row. Its errors name the file, line and column.
type table struct {
	file    string
	line    int
	columns map[string]int
	fields  []string
	reader  *csv.Reader
	// err is the first error of the header or of a row.
	err error
}

// readTable calls take for each row of a file. The header must have the required columns
// and may have the optional columns, in any order. readTable rejects unknown columns,
// because they may change the meaning of other columns.
func readTable(dir, file string, required, optional []string, take func(*table)) error {
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "cannot read %s: %v", file, errors.Unwrap(err)).Because(err)
	}
	defer f.Close() //nolint:errcheck // the file is only read
	t := &table{file: file, line: 1, columns: map[string]int{}, reader: csv.NewReader(f)}
	t.reader.ReuseRecord = true
	header, err := t.reader.Read()
	if err != nil {
		return t.broken(err)
	}
	for i, name := range header {
		if _, twice := t.columns[name]; twice || !slices.Contains(required, name) && !slices.Contains(optional, name) {
			t.wrong(name, "is unknown or not unique")
		}
		t.columns[name] = i
	}
	for _, name := range required {
		if _, there := t.columns[name]; !there {
			t.wrong(name, "is missing")
		}
	}
	for t.err == nil {
		t.fields, err = t.reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return t.broken(err)
		}
		t.line, _ = t.reader.FieldPos(0)
		take(t)
	}
	return t.err
}

// wrong records an error about a column, unless an earlier error is recorded.
func (t *table) wrong(column, format string, args ...any) {
	if t.err == nil {
		t.err = fault.New(fault.Invalid, fault.ReasonInvalid, "%s:%d: column %s: %s", t.file, t.line, column,
			fmt.Sprintf(format, args...))
	}
}

// broken returns the error about a file that cannot be read as CSV.
func (t *table) broken(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s:1: column names are missing", t.file)
	case errors.As(err, &parse):
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s:%d: column %d: %v", t.file, parse.Line, parse.Column,
			parse.Err)
	}
	return fault.New(fault.Invalid, fault.ReasonInvalid, "cannot read %s", t.file).Because(err)
}

// text returns the value of a column in the current row. It returns an empty string if
// the file does not have the column.
func (t *table) text(column string) string {
	at, there := t.columns[column]
	if !there {
		return ""
	}
	return t.fields[at]
}

// namePattern is the form of names in Berth.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// name returns the value of a column that must be a valid name in Berth.
func (t *table) name(column string) string {
	s := t.text(column)
	if !namePattern.MatchString(s) {
		t.wrong(column, "must be 1 to 128 of [A-Za-z0-9._-], the first alphanumeric, got %q", s)
	}
	return s
}

// amount returns the value of a column multiplied by a unit, or missing if the value is
// empty. If whole is set, a fraction is an error. Otherwise amount rounds the result.
func (t *table) amount(column string, unit float64, missing int64, whole bool) int64 {
	s := t.text(column)
	if s == "" {
		return missing
	}
	v, err := strconv.ParseFloat(s, 64)
	switch v *= unit; {
	case err != nil || math.IsNaN(v) || v < 0 || v > maxAmount:
		t.wrong(column, "must be a number from 0 to 2^40 base units, got %q", s)
	case whole && v != math.Trunc(v):
		t.wrong(column, "must be a whole number, got %q", s)
	}
	return int64(math.Round(v))
}

// maxAmount is the maximum amount. It prevents overflow in sums over all instances.
const maxAmount = 1 << 40
