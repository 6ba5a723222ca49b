package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"
)

// locate says which field of a body an error of protojson is about, as a path
// from the body down, such as workers[1].index: the error names the last part
// of it at most, and the place in the text. Any other error stays as it is.
func locate(body []byte, v any, err error) error {
	at := position.FindStringSubmatch(err.Error())
	if at == nil {
		return err
	}
	line, _ := strconv.Atoi(at[1])
	column, _ := strconv.Atoi(at[2])
	if path := pathAt(body, offset(body, line, column)); path != "" {
		if problem, ok := expected(v, path, err); ok {
			return fmt.Errorf("%s (field %s)", problem, path)
		}
		return fmt.Errorf("%w (field %s)", err, path)
	}
	return err
}

// position is how protojson tells where in a text it was.
var position = regexp.MustCompile(`\(line (\d+):(\d+)\)`)

// offset is where a line and a column are, both counted from 1, columns in
// characters.
func offset(body []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(body[at:], '\n')
		if end < 0 {
			return len(body)
		}
		at += end + 1
	}
	for ; column > 1 && at < len(body); column-- {
		_, size := utf8.DecodeRune(body[at:])
		at += size
	}
	return at
}

// pathAt names the field whose name or value is at an offset.
func pathAt(body []byte, offset int) string {
	type level struct {
		path  string // of the object or list
		list  bool
		index int    // in a list
		field string // of an object: whose value comes next
		named bool   // of an object: a name was read and its value was not
	}
	var stack []level
	here := func() string { // the path of the value that comes next
		if len(stack) == 0 {
			return ""
		}
		top := stack[len(stack)-1]
		switch {
		case top.list:
			return fmt.Sprintf("%s[%d]", top.path, top.index)
		case top.path == "":
			return top.field
		default:
			return top.path + "." + top.field
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		delim, structural := token.(json.Delim)
		ends := structural && (delim == ']' || delim == '}')
		name := len(stack) > 0 && !stack[len(stack)-1].list && !stack[len(stack)-1].named && !ends
		if name {
			stack[len(stack)-1].field, stack[len(stack)-1].named = token.(string), true
		}
		if ends {
			stack = stack[:len(stack)-1]
		}
		if int(d.InputOffset()) > offset {
			return here()
		}
		switch {
		case name:
			continue
		case structural && !ends:
			stack = append(stack, level{path: here(), list: delim == '['})
			continue
		}
		if len(stack) > 0 { // a whole value was read
			stack[len(stack)-1].index++
			stack[len(stack)-1].named = false
		}
	}
}
