package access

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
)

// denied reports whether an error is PERMISSION_DENIED with a text in its message.
func denied(err error, text string) bool {
	return status.Code(err) == codes.PermissionDenied && strings.Contains(status.Convert(err).Message(), text)
}

// Only a gateway can pass on an identity. The claim of another caller has no effect, and a
// gateway's caller needs the role of the method at the service too.
func TestClaimedIdentities(t *testing.T) {
	w := start(t)
	claim := func(ctx context.Context, uri string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, access.MetaCaller, uri)
	}
	const operator = "berth://default/operator/admin"
	public, registry := w.addresses[access.Public][0], w.addresses[access.Service][0]
	markReady := func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := berthv1.NewReservationsClient(conn).MarkReady(ctx, &berthv1.MarkReadyRequest{})
		return err
	}

	err := markReady(claim(t.Context(), operator), w.dial(public, w.caller(identity.Viewer, "v")))
	if !denied(err, "requires the role operator; the caller berth://default/viewer/v") {
		t.Errorf("a viewer that claims to be an operator: %v", err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+public+"/v1/registry:markReady",
		strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Grpc-Metadata-Berth-Caller", operator)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: w.caller(identity.Viewer, "v"),
		DisableKeepAlives: true}}
	res, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("the same over REST: %s", res.Status)
	}
	if err := markReady(claim(t.Context(), operator),
		w.dial(registry, w.caller(identity.Service, "s"))); !denied(err, "requires the role gateway") {
		t.Errorf("a service that claims to be an operator: %v", err)
	}
	gateway := w.dial(registry, w.caller(identity.Gateway, "g2"))
	for uri, want := range map[string]string{
		operator: "", "berth://default/viewer/v": "requires the role operator",
		"berth://other/operator/admin": "must be one identity", "operator": "must be one identity",
	} {
		if err := markReady(claim(t.Context(), uri), gateway); want == "" && err != nil || want != "" && !denied(err, want) {
			t.Errorf("a gateway with the caller %s: %v", uri, err)
		}
	}
	if err := markReady(claim(claim(t.Context(), operator), operator), gateway); !denied(err, "must be one identity") {
		t.Errorf("a gateway with two callers: %v", err)
	}
	job := claim(t.Context(), "berth://default/job/train")
	if _, err := berthv1.NewReservationsClient(gateway).CancelJob(job,
		&berthv1.CancelJobRequest{Job: "other"}); !denied(err, "may name only jobs") {
		t.Errorf("a gateway that forwards a foreign job: %v", err)
	}
}

// Bearer tokens prove identities on the public listener, over gRPC and REST, until the
// access file does not have them any more.
func TestBearerTokens(t *testing.T) {
	w := start(t)
	public := w.addresses[access.Public][0]
	nobody := anonymous(w)
	conn := w.dial(public, nobody)
	drain := func(token string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		_, err := berthv1.NewExecutorsClient(conn).DrainExecutor(ctx, &berthv1.DrainExecutorRequest{Id: "host"})
		return err
	}
	for token, want := range map[string]string{
		"Bearer of alice": "", "bearer of alice": "",
		"Bearer of bob":       "requires the role operator; the bearer token is unknown",
		"Bearer of train":     "requires the role operator; the caller berth://default/job/train has the role job",
		"Basic YTpi":          "requires the role operator; authorization: must be a bearer token",
		"Bearer of alice bob": "unknown",
	} {
		if err := drain(token); want == "" && err != nil || want != "" && !denied(err, want) {
			t.Errorf("%s: %v", token, err)
		}
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: nobody, DisableKeepAlives: true}}
	upsert := func(job, token string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			"https://"+public+"/v1/jobs/"+job+"/stages/s/reservation", strings.NewReader(`{"count":1}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", token)
		res, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+public+"/v1/executors", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer of bob")
	res, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusForbidden ||
		!strings.Contains(string(body), "requires the role autoscaler, viewer or operator; the bearer token is unknown") {
		t.Errorf("an unknown token over REST: %s %s %v", res.Status, body, err)
	}
	for job, want := range map[string]int{"train": http.StatusOK, "train-eu": http.StatusOK,
		"training": http.StatusForbidden} {
		if got := upsert(job, "Bearer of train"); got != want {
			t.Errorf("an upsert of %s: %d, want %d", job, got, want)
		}
	}
	// A job service lists only its own jobs, over gRPC and REST.
	if got := upsert("other", "Bearer of alice"); got != http.StatusOK {
		t.Errorf("an upsert of the operator: %d", got)
	}
	jobs := func(token, prefix string) (string, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		answer, err := berthv1.NewReservationsClient(conn).ListJobs(ctx, &berthv1.ListJobsRequest{Prefix: prefix})
		var names []string
		for _, j := range answer.GetJobs() {
			names = append(names, j.GetName())
		}
		return strings.Join(names, " "), err
	}
	for _, c := range []struct{ token, prefix, want string }{
		{"Bearer of alice", "", "other train train-eu"},
		{"Bearer of alice", "other", "other"},
		{"Bearer of train", "", "train train-eu"},
		{"Bearer of train", "train-", "train-eu"},
		{"Bearer of train", "train-us", ""},
	} {
		if got, err := jobs(c.token, c.prefix); got != c.want || err != nil {
			t.Errorf("the jobs of %q with the prefix %q: %q, %v; want %q", c.token, c.prefix, got, err, c.want)
		}
	}
	if _, err := jobs("Bearer of train", "other"); !denied(err, "may list only jobs that the prefix \"train\" covers") {
		t.Errorf("the jobs of another tenant: %v", err)
	}
	// The file changes: the token of the operator ends.
	if err := os.WriteFile(filepath.Join(w.dir, "access.yaml"), []byte("tokens: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for !denied(drain("Bearer of alice"), "unknown") {
		time.Sleep(20 * time.Millisecond)
	}
}

// An agent's certificate is for one executor only, whatever its requests say.
func TestAnAgentActsOnlyForItsExecutor(t *testing.T) {
	w := start(t)
	thief := w.dial(w.addresses[access.Agents][0], w.caller(identity.Agent, "thief"))
	_, err := controlv1.NewAgentsClient(thief).Register(t.Context(), &controlv1.RegisterRequest{Id: "host",
		Address: "127.0.0.1:1", Nonce: "n", Secret: strings.Repeat("s", 32)})
	if !denied(err, `may act only for its own executor, got "host"`) {
		t.Errorf("a registration of another executor: %v", err)
	}
	if _, err := controlv1.NewGangsClient(thief).ListMembers(t.Context(), &controlv1.GangMembersRequest{Id: "host",
		Incarnation: 1, Nonce: "n", Request: &berthv1.ListMembersRequest{Job: "j", Stage: "s"}}); !denied(err,
		`may act only for its own executor, got "host"`) {
		t.Errorf("members for another executor: %v", err)
	}
	stream, err := controlv1.NewHeartbeatsClient(thief).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&controlv1.HeartbeatRequest{Id: "host", Incarnation: 1, Nonce: "n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !denied(err, `may act only for its own executor, got "host"`) {
		t.Errorf("a heartbeat of another executor: %v", err)
	}
	lines := w.audit("gateway-g")
	if len(lines) < 3 {
		t.Fatalf("audit log %+v", lines)
	}
	for _, line := range lines[len(lines)-3:] {
		if line.Caller != "berth://default/agent/thief" || line.Object != "host" || line.Outcome != "PermissionDenied" {
			t.Errorf("audit line %+v", line)
		}
	}
}

// Services, agents and the internal listener of a gateway reject a call before they read its
// message, so that nobody without the role can use their memory.
func TestRejectedCallsAreNotRead(t *testing.T) {
	w := start(t)
	for at, method := range map[access.Listener]string{
		access.Service:  berthv1.Reservations_UpsertReservation_FullMethodName,
		access.Internal: controlv1.Dispatch_ReportWorkers_FullMethodName,
		access.Agent:    controlv1.Executor_SubmitTasks_FullMethodName,
	} {
		conn := w.dial(w.addresses[at][0], w.caller(identity.Agent, "thief"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method,
			grpc.ForceCodecV2(rpc.FrameCodec()))
		if err == nil {
			err = stream.RecvMsg(&rpc.Frame{}) // the call has sent no message
		}
		cancel()
		if !denied(err, "requires the role ") {
			t.Errorf("%s on %v: %v", method, at, err)
		}
	}
	for _, process := range []string{"service-registry", "gateway-g", "agent-host"} {
		lines := w.audit(process)
		if n := len(lines); n == 0 || lines[n-1].Caller != "berth://default/agent/thief" ||
			lines[n-1].Outcome != "PermissionDenied" {
			t.Errorf("%s: audit log %+v", process, lines)
		}
	}
}

// An autoscaler may undo only its claims, and not what an operator has disabled.
func TestAnAutoscalerUndoesOnlyClaims(t *testing.T) {
	w := start(t)
	public := w.addresses[access.Public][0]
	operator := berthv1.NewExecutorsClient(w.dial(public, w.caller(identity.Operator, "admin")))
	autoscaler := berthv1.NewExecutorsClient(w.dial(public, w.caller(identity.Autoscaler, "scaler")))
	host := &berthv1.ExecutorSelector{Ids: []string{"host"}}
	if _, err := operator.DisableExecutors(t.Context(), &berthv1.DisableExecutorsRequest{RequestId: "d",
		Selector: host}); err != nil {
		t.Fatal(err)
	}
	for _, request := range []*berthv1.EnableExecutorsRequest{{DisableRequestId: "d"}, {Selector: host}} {
		if _, err := autoscaler.EnableExecutors(t.Context(), request); !denied(err, "requires the role operator") {
			t.Errorf("%v: %v", request, err)
		}
	}
	if answer, err := operator.EnableExecutors(t.Context(), &berthv1.EnableExecutorsRequest{Selector: host}); err != nil ||
		answer.GetUndone() != 1 {
		t.Errorf("the operator: %v, %v", answer, err)
	}
}

// The explanation for a job service does not name a job of others.
func TestAnExplanationDoesNotNameForeignJobs(t *testing.T) {
	w := start(t)
	public := w.addresses[access.Public][0]
	operator := w.dial(public, w.caller(identity.Operator, "admin"))
	for _, job := range []string{"other", "train"} {
		if _, err := berthv1.NewReservationsClient(operator).UpsertReservation(t.Context(),
			&berthv1.UpsertReservationRequest{Reservation: &berthv1.Reservation{Job: job, Stage: "s", Count: 100}}); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(conn *grpc.ClientConn) *berthv1.Explanation {
		e, err := berthv1.NewExplanationsClient(conn).ExplainReservation(t.Context(),
			&berthv1.ExplainReservationRequest{Job: "train", Stage: "s"})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := explain(operator); e.GetHead().GetJob() != "other" || e.GetPosition() != 2 {
		t.Errorf("for an operator: %v", e)
	}
	if e := explain(w.dial(public, w.caller(identity.Job, "train"))); e.GetHead() != nil || e.GetHeadAge() != nil ||
		e.GetPosition() != 2 {
		t.Errorf("for the job service: %v", e)
	}
}
