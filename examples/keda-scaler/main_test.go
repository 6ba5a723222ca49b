package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// patience is the time limit of every wait. Only a failure takes this long.
const patience = time.Minute

// start runs `berth dev --tls` with two simulated executors of the SKU sim, and sets the
// options that it prints.
func start(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "berth.dev/cmd/berth")
	build.Dir = "../.." // with the workspace, to which this module does not belong
	build.Env = append(build.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dev := exec.Command(program, "dev", "--listen", "127.0.0.1:0", "--executors", "2", "--log-level", "error", "--tls",
		"--data-dir", t.TempDir())
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(dev.Process.Signal(syscall.SIGTERM), dev.Wait()); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	for part := make([]byte, 4096); !strings.Contains(text.String(), "Press Ctrl-C"); {
		n, err := out.Read(part)
		if text.Write(part[:n]); err != nil {
			t.Fatalf("%v: %s", err, &text)
		}
	}
	for name, option := range map[string]*string{"GATEWAY": gateways, "TLS_CA": ca, "TLS_CERT": cert, "TLS_KEY": key} {
		found := regexp.MustCompile(` BERTH_` + name + `=(?:https://)?(\S+)`).FindStringSubmatch(text.String())
		if found == nil {
			t.Fatalf("no BERTH_%s in %s", name, &text)
		}
		*option = found[1]
	}
}

// TestKEDAReadsTheAdvice calls the scaler with the client of KEDA while demand comes and
// goes.
func TestKEDAReadsTheAdvice(t *testing.T) {
	start(t)
	*poll = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	berth, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer berth.Close()
	put := func(sku string, rule *berthv1.ScaleRule) {
		t.Helper()
		_, err := berth.PutSKU(ctx, &berthv1.Sku{Name: sku, Resources: map[string]int64{"slots": 1}, Scale: rule})
		if err != nil {
			t.Fatal(err)
		}
	}
	none := int32(0)
	put("sim", &berthv1.ScaleRule{MinIdle: 1})
	put("cold", &berthv1.ScaleRule{MaxIdle: &none})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externalscaler.RegisterExternalScalerServer(server, &scaler{berth: berth})
	go server.Serve(l)
	defer server.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	keda := externalscaler.NewExternalScalerClient(conn)
	object := func(sku string) *externalscaler.ScaledObjectRef {
		return &externalscaler.ScaledObjectRef{
			Name: "agents", Namespace: "berth", ScalerMetadata: map[string]string{"sku": sku},
		}
	}
	value := func(sku string) float64 {
		t.Helper()
		spec, err := keda.GetMetricSpec(ctx, object(sku))
		if err != nil || len(spec.GetMetricSpecs()) != 1 {
			t.Fatal(spec, err)
		}
		name := spec.GetMetricSpecs()[0].GetMetricName()
		answer, err := keda.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: object(sku), MetricName: name})
		if err != nil || len(answer.GetMetricValues()) != 1 || answer.GetMetricValues()[0].GetMetricName() != name {
			t.Fatal(answer, err)
		}
		return answer.GetMetricValues()[0].GetMetricValueFloat() / spec.GetMetricSpecs()[0].GetTargetSizeFloat()
	}
	active := func(sku string) bool {
		t.Helper()
		answer, err := keda.IsActive(ctx, object(sku))
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetResult()
	}

	// Both executors are idle, and nothing wants the cold SKU.
	if got := value("sim"); got != 2 || !active("sim") {
		t.Errorf("sim: %v replicas", got)
	}
	put("sim", &berthv1.ScaleRule{MinSize: 5})
	if got := value("sim"); got != 5 {
		t.Errorf("sim with minSize 5: %v replicas", got)
	}
	put("sim", &berthv1.ScaleRule{MinSize: 5, HoldUntil: timestamppb.New(time.Now().Add(time.Hour))})
	if got := value("sim"); got != 2 {
		t.Errorf("sim during a hold: %v replicas", got)
	}
	if got := value("cold"); got != 0 || active("cold") {
		t.Errorf("cold: %v replicas", got)
	}
	if got := recipe(t, "cold"); got != 0 {
		t.Errorf("the metrics-api recipe reads %v", got)
	}
	stream, err := keda.StreamIsActive(ctx, object("cold"))
	if err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetResult() {
		t.Fatal(first, err)
	}

	// A gang of three waits for the cold SKU.
	key := client.Key{Job: "train", Stage: "gpu"}
	if _, err := berth.Reserve(ctx, &berthv1.Reservation{Job: key.Job, Stage: key.Stage, Count: 3,
		Constraints: &berthv1.Constraints{Sku: "cold"}}); err != nil {
		t.Fatal(err)
	}
	if next, err := stream.Recv(); err != nil || !next.GetResult() {
		t.Fatal(next, err)
	}
	if got := value("cold"); got != 3 {
		t.Errorf("cold: %v replicas", got)
	}
	if got := recipe(t, "cold"); got != 3 {
		t.Errorf("the metrics-api recipe reads %v", got)
	}
	if _, err := berth.Cancel(ctx, key); err != nil {
		t.Fatal(err)
	}
	if last, err := stream.Recv(); err != nil || last.GetResult() {
		t.Fatal(last, err)
	}

	// Without advice KEDA gets an error, and so changes nothing.
	for sku, want := range map[string]codes.Code{"": codes.InvalidArgument, "none": codes.NotFound} {
		if _, err := keda.IsActive(ctx, object(sku)); status.Code(err) != want {
			t.Errorf("SKU %q: %v", sku, err)
		}
		_, err := keda.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: object(sku)})
		if status.Code(err) != want {
			t.Errorf("SKU %q: %v", sku, err)
		}
	}
}

// recipe reads the number that the trigger metrics-api of docs/how-to/autoscale.md names,
// whose valueLocation is skus.0.wantedSize.
func recipe(t *testing.T, sku string) float64 {
	t.Helper()
	config, err := tlsConfig()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("https://" + *gateways + "/v1/usage?sku=" + sku)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	for step := range strings.SplitSeq("skus.0.wantedSize", ".") {
		if list, ok := value.([]any); ok {
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(list) {
				t.Fatalf("no %s in %s", step, text)
			}
			value = list[i]
			continue
		}
		value = value.(map[string]any)[step]
	}
	number, ok := value.(float64)
	if !ok {
		t.Fatalf("%v is not a number in %s", value, text)
	}
	return number
}

// TestDocumentedBuild executes the build command of docs/how-to/autoscale.md in the
// environment of a reader, to whom the workspace of the repository applies.
func TestDocumentedBuild(t *testing.T) {
	guide, err := os.ReadFile("../../docs/how-to/autoscale.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^cd examples/keda-scaler\n.*go build$`).Find(guide)
	if command == nil {
		t.Fatal("the guide has no build command")
	}
	build := exec.CommandContext(t.Context(), "sh", "-ec", string(command)+" -o "+filepath.Join(t.TempDir(), "program"))
	build.Dir = "../.."
	build.Env = append(build.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}
