package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/rest"
	"berth.dev/services/gateway/internal/stream"
)

// Limits of one stream.
const (
	maxPaths = 16
	maxPath  = 2048 // bytes
)

// path is a call that a stream follows.
type path struct {
	text string // as in the request
	url  *url.URL
	// named is true if the answer, or the error for a viewer, has the name of the caller.
	named bool
}

// digest identifies an answer of a path. The zero digest is that of no answer.
type digest [8]byte

// cursor has the digests of the last sent answers, by the position of the path.
type cursor []digest

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(bytes.Join(c.parts(), nil))
}

func (c cursor) parts() (parts [][]byte) {
	for i := range c {
		parts = append(parts, c[i][:])
	}
	return parts
}

// parseCursor parses a result of String for n paths. The empty text is before all answers.
func parseCursor(text string, n int) (cursor, error) {
	c := make(cursor, n)
	if text == "" {
		return c, nil
	}
	all, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(all) != n*len(digest{}) {
		return nil, fault.BadField(fault.ReasonInvalid, "since", "%.400q is not the cursor of an event of these paths", text)
	}
	for i := range c {
		c[i] = digest(all[i*len(digest{}):])
	}
	return c, nil
}

// Errors with a status of their own.
var (
	errNotAcceptable = fault.New(fault.Invalid, fault.ReasonUnsupported,
		"the Accept header must allow text/event-stream: a watch has only server-sent events")
	errMethod = fault.New(fault.Invalid, fault.ReasonUnsupported, "HEAD is not supported at /v1/watch")
)

// parse returns the paths of a request, and the cursor from which it resumes.
func (s *Server) parse(r *http.Request) ([]path, cursor, error) {
	switch {
	case r.Method != http.MethodGet: // http.ServeMux adds HEAD, whose answer would never end
		return nil, nil, errMethod
	case !accepts(r.Header.Values("Accept")):
		return nil, nil, errNotAcceptable
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the query cannot be read: %v", err)
	}
	if err := rest.OnlyParameters(query, "path", "since"); err != nil {
		return nil, nil, err
	}
	texts := query["path"]
	if n := len(texts); n == 0 || n > maxPaths {
		return nil, nil, fault.BadField(fault.ReasonInvalid, "path", "must be given 1 to %d times, got %d", maxPaths, n)
	}
	var paths []path
	for i, text := range texts {
		if slices.Contains(texts[:i], text) {
			return nil, nil, fault.BadField(fault.ReasonInvalid, "path", "%q is given twice", text)
		}
		p, err := s.parsePath(text)
		if err != nil {
			return nil, nil, err
		}
		paths = append(paths, p)
	}
	sent, err := parseCursor(stream.Since(r, query), len(paths))
	return paths, sent, err
}

// accepts reports whether a request with these Accept headers may get server-sent events.
func accepts(headers []string) bool {
	if len(headers) == 0 {
		return true
	}
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			kind, _, err := mime.ParseMediaType(part)
			if err == nil && slices.Contains([]string{"*/*", "text/*", "text/event-stream"}, kind) {
				return true
			}
		}
	}
	return false
}

// parsePath parses a path. The call itself may still be refused, as an error of the path.
func (s *Server) parsePath(text string) (path, error) {
	if len(text) > maxPath {
		return path{}, fault.BadField(fault.ReasonTooLarge, "path", "must have at most %d bytes, got %d", maxPath, len(text))
	}
	at, err := url.ParseRequestURI(text)
	if err != nil || !strings.HasPrefix(text, "/v1/") {
		return path{}, fault.BadField(fault.ReasonInvalid, "path", "must be a path such as /v1/leaders, got %q", text)
	}
	pattern := s.calls.Pattern(at)
	switch {
	case pattern == "":
		return path{}, fault.BadField(fault.ReasonInvalid, "path", "%q is not a GET call that answers at once", text)
	case strings.HasSuffix(pattern, "/output"):
		return path{}, fault.BadField(fault.ReasonInvalid, "path", "%q is the output of a worker, which is read in parts", text)
	case strings.HasSuffix(pattern, ":members") && at.Query().Has("cursor"):
		return path{}, fault.BadField(fault.ReasonInvalid, "path", "%q has a cursor, so the call would wait", text)
	}
	return path{text, at, pattern == "/v1/caller" || pattern == "/v1/audit"}, nil
}

// writeRefusal writes an error of parse. Errors about the request itself have their own status.
func writeRefusal(w http.ResponseWriter, err error) {
	switch err {
	case error(errNotAcceptable):
		rest.WriteStatus(w, http.StatusNotAcceptable, errNotAcceptable)
	case error(errMethod):
		rest.WriteStatus(w, http.StatusMethodNotAllowed, errMethod)
	default:
		rest.WriteError(w, err)
	}
}

// answer returns an answer of the path, which nobody holds yet.
func (p path) answer(status int, body []byte) *answer {
	kind, failed := "answer", status != http.StatusOK
	if failed {
		kind = "error"
	}
	text := fmt.Appendf(nil, `{"path":%s,"%s":`, quoted(p.text), kind)
	from := len(text)
	text = append(append(text, body...), '}')
	return &answer{digest: p.digest(failed, body), text: text, body: text[from : from+len(body)], failed: failed,
		final: isFinal(status)}
}

// quoted returns a JSON string. It does not escape the characters of HTML.
func quoted(text string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	return bytes.TrimSpace(out.Bytes())
}

// unchanging has the fields of lists that differ without a change of the list.
var unchanging = []string{"revision", "cursor", "now"}

// ages matches the fields of objects that grow with time alone. It matches no part of a text,
// in which quotes are escaped.
var ages = regexp.MustCompile(`"(?:age|headAge)":"[0-9.]+s"`)

// digest returns the digest of an answer, or of an error by its code and reason.
func (p path) digest(failed bool, body []byte) (d digest) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %v ", p.text, failed)
	var fields map[string]json.RawMessage
	var status struct {
		Code    int
		Details []struct{ Reason string }
	}
	switch {
	case failed && json.Unmarshal(body, &status) == nil:
		fmt.Fprintf(h, "%d %q", status.Code, status.Details)
	case !failed && json.Unmarshal(body, &fields) == nil:
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(unchanging, name) {
				h.Write(ages.ReplaceAll(fmt.Appendf(nil, "%q:%s", name, fields[name]), nil))
			}
		}
	default:
		h.Write(body)
	}
	return digest(h.Sum(nil))
}
