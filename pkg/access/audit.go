package access

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/natefinch/lumberjack.v2"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// The size of an audit log: it has at most auditFiles files of auditMiB MiB and the current
// one, so that rejected calls cannot fill a disk.
const (
	auditMiB   = 100
	auditFiles = 9
)

// maxAuditText is the maximum length of each text that a caller can choose, in bytes.
const maxAuditText = 512

// Audit is an audit log: a line of JSON for each call that changes something, for each
// rejected call and for each rejected connection.
type Audit struct {
	log *slog.Logger

	mu     sync.Mutex
	out    io.Writer
	closer io.Closer
	failed bool
}

// Entry is a line of an audit log.
type Entry struct {
	Time time.Time `json:"time"`
	// Caller is the identity of the caller, "trusted" for a caller in plain text, or
	// "nobody". Peer is its address.
	Caller string `json:"caller"`
	Peer   string `json:"peer"`
	// Listener is the option of the listener.
	Listener string `json:"listener"`
	// Method is the method without the first slash; empty for a connection. Object is the
	// job, the reservation or the executor.
	Method string `json:"method,omitempty"`
	Object string `json:"object,omitempty"`
	// RequestID identifies the call of a client, which may send it several times.
	RequestID string `json:"requestId,omitempty"`
	// Outcome is the gRPC code, or TLS_REJECTED for a connection. Reason and Message are
	// those of the error.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Revision is the revision of etcd that made the change durable; 0 if nothing changed.
	Revision int64 `json:"revision,omitempty"`
}

// OpenAudit opens an audit log. The name "-" is standard output; an empty name means no audit
// log, and OpenAudit returns nil.
func OpenAudit(name string, log *slog.Logger) (*Audit, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return &Audit{log: log, out: os.Stdout, closer: io.NopCloser(nil)}, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	file := &lumberjack.Logger{Filename: name, MaxSize: auditMiB, MaxBackups: auditFiles}
	return &Audit{log: log, out: file, closer: file}, nil
}

// Close closes the file.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	return a.closer.Close()
}

// wants reports whether accepted calls of a method are recorded.
func (a *Audit) wants(method string) bool { return a != nil && table[method].changes }

// Rejected records a connection whose handshake failed.
func (a *Audit) Rejected(listener, peer, reason string) {
	a.write(Entry{Caller: "nobody", Peer: peer, Listener: listener, Outcome: "TLS_REJECTED", Message: reason})
}

// record records a call with its outcome.
func (g *Guard) record(ctx context.Context, c Caller, method string, request proto.Message, err error) {
	outcome := status.Convert(rpc.ToStatus(err))
	rejected := isDenied(err)
	if rejected && g.Rejected != nil {
		g.Rejected.Add(1)
	}
	if rejected && g.Log != nil && (g.Lines == nil || g.Lines.Allow()) {
		g.Log.Warn("rejected a call", "listener", g.Listener.String(), "caller", c.String(), "peer", c.Peer, "error", err)
	}
	if g.Audit == nil || !rejected && !g.Audit.wants(method) {
		return
	}
	if c.passed {
		return // the gateway records the call
	}
	e := Entry{
		Caller: c.String(), Peer: c.Peer, Listener: g.Listener.String(), Method: strings.TrimPrefix(method, "/"),
		Outcome: outcome.Code().String(), Message: outcome.Message(), Revision: rpc.RevisionIn(ctx),
	}
	if err != nil {
		e.Reason = string(rpc.FromStatus(err).Reason)
	}
	e.Object, e.RequestID = objectOf(request)
	g.Audit.write(e)
}

// write writes a line. If the log cannot be written, calls continue, and the process logs
// the first error.
func (a *Audit) write(e Entry) {
	if a == nil {
		return
	}
	e.Time = time.Now().UTC()
	for _, text := range []*string{&e.Method, &e.Object, &e.RequestID, &e.Message} {
		if len(*text) > maxAuditText {
			*text = strings.ToValidUTF8((*text)[:maxAuditText], "") + "…"
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // an Entry always marshals
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.out.Write(append(line, '\n'))
	if err != nil && !a.failed {
		a.log.Error("cannot write to the audit log", "error", err)
	}
	a.failed = err != nil
}

// isDenied reports whether an error is a rejection by the table or by an identity.
func isDenied(err error) bool {
	return err != nil && rpc.FromStatus(err).Kind == fault.Denied
}

// objectFields has the fields that name the object of a request, in order. A request with a
// field in innerFields has them in that message.
var (
	objectFields = []protoreflect.Name{"job", "stage", "name", "id", "executor", "service"}
	innerFields  = []protoreflect.Name{"reservation", "sku", "pool"}
)

// objectOf returns the object that a request names, and its request ID.
func objectOf(request proto.Message) (object, requestID string) {
	if request == nil {
		return "", ""
	}
	message := request.ProtoReflect()
	requestID = textIn(message, "request_id")
	if inner := innerOf(message); inner != nil {
		message, requestID = inner, cmp.Or(requestID, textIn(inner, "request_id"))
	}
	var parts []string
	for _, name := range objectFields {
		if part := textIn(message, name); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/"), requestID
}

// jobIn returns the job that a request names, or "".
func jobIn(request proto.Message) string {
	message := request.ProtoReflect()
	if inner := innerOf(message); inner != nil {
		message = inner
	}
	return textIn(message, "job")
}

// innerOf returns the message in a request that names the object; nil if the request itself
// names it.
func innerOf(message protoreflect.Message) protoreflect.Message {
	for _, name := range innerFields {
		f := message.Descriptor().Fields().ByName(name)
		if f != nil && f.Message() != nil && !f.IsList() && message.Has(f) {
			return message.Get(f).Message()
		}
	}
	return nil
}

// textIn returns the text in a field of a message, or "".
func textIn(message protoreflect.Message, name protoreflect.Name) string {
	f := message.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return message.Get(f).String()
}
