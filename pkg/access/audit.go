package access

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	xrate "golang.org/x/time/rate"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/reload"
)

// The size of an audit log: it has at most auditFiles files of auditMiB MiB and the current
// one, so that rejected calls cannot fill a disk.
const (
	auditMiB   = 100
	auditFiles = 9
)

// maxAuditText is the maximum length of each text that a caller can choose, in bytes.
const maxAuditText = 512

// Any peer can cause lines about calls that fail, so their rate is limited: at the maximum
// rate the log still covers about four days. Failures of identified callers have a limit of
// their own, which strangers cannot use up.
const (
	auditFailures = xrate.Limit(10) // lines per second
	auditBurst    = 1000
)

// Audit is an audit log: an entry for each call that changes something, for each rejected
// call and for each rejected connection. It writes the entries as lines of JSON, keeps the
// newest ones in memory, or both.
type Audit struct {
	log *slog.Logger

	mu     sync.Mutex
	out    io.Writer // nil without a file
	closer io.Closer
	forget func()  // ends the effect of reload.Now
	lost   int64   // entries since the log could not be written
	recent *recent // nil if no entries are kept
	// strangers and identified limit the lines about calls that fail.
	strangers, identified failures
}

// failures limits the lines about the failures of one kind of callers.
type failures struct {
	limiter *xrate.Limiter
	skipped int64 // since the last line
}

// admit reports whether a line may be written, and how many lines were skipped before it.
func (r *failures) admit() (skipped int64, ok bool) {
	if !r.limiter.Allow() {
		r.skipped++
		return 0, false
	}
	skipped, r.skipped = r.skipped, 0
	return skipped, true
}

// nobody is the name of a caller without an identity.
const nobody = "nobody"

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
	// Skipped is the number of failures of the same kind of callers, identified or not, that
	// have no line because there were too many since the line before.
	Skipped int64 `json:"skipped,omitempty"`
}

// OpenAudit opens an audit log. The name "-" is standard output, and with an empty name the
// log has no file. If the file is moved or deleted, the next entry is in a new file with the name;
// reload.Now closes the old one at once.
// If keep is true, the newest entries are in memory for Page. Without a file and entries in memory
// there is no audit log, and OpenAudit returns nil.
func OpenAudit(name string, keep bool, log *slog.Logger) (*Audit, error) {
	a, err := openAudit(name, log)
	if err == nil && keep {
		if a == nil {
			a = newAudit(nil, io.NopCloser(nil), log)
		}
		a.recent = newRecent(time.Now())
	}
	return a, err
}

func openAudit(name string, log *slog.Logger) (*Audit, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return newAudit(os.Stdout, io.NopCloser(nil), log), nil
	}
	file, err := openAuditFile(name)
	if err != nil {
		return nil, err
	}
	a := newAudit(file, file, log)
	a.forget = reload.OnNow(a.release)
	return a, nil
}

func newAudit(out io.Writer, closer io.Closer, log *slog.Logger) *Audit {
	limit := func() failures { return failures{limiter: xrate.NewLimiter(auditFailures, auditBurst)} }
	return &Audit{log: log, out: out, closer: closer, forget: func() {}, strangers: limit(), identified: limit()}
}

// Close closes the file.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.forget()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closer.Close()
}

// release closes the file until the next entry, so that a file that was moved is complete.
func (a *Audit) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.closer.Close(); err != nil {
		a.log.Error("cannot close the audit log", "error", err)
	}
}

// wants reports whether accepted calls of a method are recorded.
func (a *Audit) wants(method string) bool { return a != nil && table[method].changes }

// Rejected records a connection whose handshake failed.
func (a *Audit) Rejected(listener, peer, reason string) {
	a.write(Entry{Caller: nobody, Peer: peer, Listener: listener, Outcome: "TLS_REJECTED", Message: reason}, true)
}

// record records a call with its outcome.
func (g *Guard) record(ctx context.Context, c Caller, method string, about subject, err error) {
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
		Object: about.object(), RequestID: about.requestID, Outcome: outcome.Code().String(), Message: outcome.Message(),
		Revision: rpc.RevisionIn(ctx),
	}
	if err != nil {
		e.Reason = string(rpc.FromStatus(err).Reason)
	}
	g.Audit.write(e, err != nil)
}

// write writes a line and keeps the entry. If the log cannot be written, calls continue, and the
// process logs the first error. Once lines can be written again, it logs how many entries were lost.
func (a *Audit) write(e Entry, failed bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if failed {
		kind := &a.identified
		if e.Caller == nobody {
			kind = &a.strangers
		}
		var ok bool
		if e.Skipped, ok = kind.admit(); !ok {
			return
		}
	}
	e.Time = time.Now().UTC()
	for _, text := range []*string{&e.Method, &e.Object, &e.RequestID, &e.Message} {
		if len(*text) > maxAuditText {
			*text = strings.ToValidUTF8((*text)[:maxAuditText], "") + "…"
		}
	}
	if a.recent != nil {
		a.recent.add(e)
	}
	if a.out == nil {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // an Entry always marshals
	}
	line = append(line, '\n')
	n, err := a.out.Write(line)
	if err != nil && a.lost == 0 {
		a.log.Error("cannot write to the audit log", "error", err)
	}
	if n < len(line) {
		a.lost++
	} else if a.lost > 0 {
		a.log.Warn("the audit log can be written again", "lostEntries", a.lost)
		a.lost = 0
	}
}

// isDenied reports whether an error is a rejection by the table or by an identity.
func isDenied(err error) bool {
	return err != nil && rpc.FromStatus(err).Kind == fault.Denied
}
