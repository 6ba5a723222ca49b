package replay

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"berth.dev/api/fault"
)

// table reads one file of a trace, row by row. Its errors name file, line and
// column.
type table struct {
	file    string
	line    int
	columns map[string]int
	fields  []string
	reader  *csv.Reader
}

// readTable gives each row of a file to take. The header has to have every
// column that is required and may have the optional ones, in any order; another
// column is refused, because it may change what the rest means.
func readTable(dir, file string, required, optional []string, take func(*table) error) error {
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s: cannot be read: %v", file, errors.Unwrap(err)).Because(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	t := &table{file: file, line: 1, columns: map[string]int{}, reader: csv.NewReader(f)}
	t.reader.ReuseRecord = true
	header, err := t.reader.Read()
	if err != nil {
		return t.broken(err)
	}
	for i, name := range header {
		if _, twice := t.columns[name]; twice || !slices.Contains(required, name) && !slices.Contains(optional, name) {
			return t.wrong(name, "is not known, or twice there")
		}
		t.columns[name] = i
	}
	for _, name := range required {
		if _, there := t.columns[name]; !there {
			return t.wrong(name, "is missing")
		}
	}
	for {
		t.fields, err = t.reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return t.broken(err)
		}
		t.line, _ = t.reader.FieldPos(0)
		if err := take(t); err != nil {
			return err
		}
	}
}

// wrong is the error of one column.
func (t *table) wrong(column, format string, args ...any) error {
	f := fault.New(fault.Invalid, fault.ReasonInvalid, format, args...)
	f.Message = t.file + ":" + strconv.Itoa(t.line) + ": column " + column + ": " + f.Message
	return f
}

// broken is the error of a file that is not CSV.
func (t *table) broken(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s:1: column names are missing", t.file)
	case errors.As(err, &parse):
		return fault.New(fault.Invalid, fault.ReasonInvalid, "%s:%d: column %d: %v", t.file, parse.Line, parse.Column, parse.Err)
	}
	return fault.New(fault.Invalid, fault.ReasonInvalid, "%s: cannot be read", t.file).Because(err)
}

// text is a value as it stands; empty also where the column is not there.
func (t *table) text(column string) string {
	at, there := t.columns[column]
	if !there {
		return ""
	}
	return t.fields[at]
}

// aName is the form of names in Berth.
var aName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// name returns a value that is a name in Berth.
func (t *table) name(column string) (string, error) {
	s := t.text(column)
	if !aName.MatchString(s) {
		return "", t.wrong(column, "%q is not a name: 1 to 128 of [A-Za-z0-9._-], the first alphanumeric", s)
	}
	return s, nil
}

// amount is a value times a unit; missing for an empty one. Fractions of ones
// are refused where whole is set, and rounded otherwise.
func (t *table) amount(column string, unit float64, missing int64, whole bool) (int64, error) {
	s := t.text(column)
	if s == "" {
		return missing, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	switch v *= unit; {
	case err != nil || math.IsNaN(v) || v < 0 || v > maxAmount:
		return 0, t.wrong(column, "%q is not an amount", s)
	case whole && v != math.Trunc(v):
		return 0, t.wrong(column, "%q is not an amount in whole ones", s)
	}
	return int64(math.Round(v)), nil
}

// maxAmount keeps sums over all instances far from overflow.
const maxAmount = 1 << 40
