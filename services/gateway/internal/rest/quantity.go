package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"berth.dev/pkg/quantity"
)

// quantities replaces the quantities in a body (`"cpu": "500m"`) by base units.
// Amounts without a suffix are base units already and stay as they are. Only
// `resources` of the body and of its `constraints` hold amounts. A body that is
// not JSON stays as it is, for the decoder to refuse.
func quantities(body []byte) ([]byte, error) {
	if !bytes.Contains(body, []byte(`"resources"`)) {
		return body, nil
	}
	var out bytes.Buffer
	copied := 0
	var path []string // of the objects and lists around the next token, "" for a list
	field, named := "", false
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		before := int(d.InputOffset())
		token, err := d.Token()
		if err != nil {
			break
		}
		object := len(path) > 0 && path[len(path)-1] != ""
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				path = append(path, child(path, field))
			case '[':
				path = append(path, "")
			default:
				path = path[:len(path)-1]
			}
			named = false
			continue
		case string:
			if object && !named {
				field, named = token, true
				continue
			}
			at := len(path)
			if named && at > 0 && (path[at-1] == "body.resources" || path[at-1] == "body.constraints.resources") && quantity.HasSuffix(token) {
				n, err := quantity.Base(field, token)
				if err != nil {
					return nil, fmt.Errorf("%w (field %s.%s)", err, path[at-1][len("body."):], field)
				}
				start := before + bytes.IndexByte(body[before:], '"')
				out.Write(body[copied:start])
				out.WriteString(strconv.FormatInt(n, 10))
				copied = int(d.InputOffset())
			}
		}
		named = false
	}
	if copied == 0 {
		return body, nil
	}
	out.Write(body[copied:])
	return out.Bytes(), nil
}

// child names an object below others; only those of one depth matter.
func child(path []string, field string) string {
	switch {
	case len(path) == 0:
		return "body"
	case path[len(path)-1] == "" || len(path) > 3:
		return "other"
	}
	return path[len(path)-1] + "." + field
}
