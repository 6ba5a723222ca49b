package scenario

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.yaml.in/yaml/v3"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/transport"
)

// TestDashboardAndAlertsFindTheirMetrics scrapes every process of a cluster with TLS, and
// etcd, as Prometheus does. The processes must serve every metric that the dashboard and the
// alerts name, with every label and with every value of a label.
func TestDashboardAndAlertsFindTheirMetrics(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{TLS: transport.Require})
	w.startSim("sim", 2, 4)
	w.startAgents(fleet.Agent{ID: "host", SKU: "host", Slots: 1, Allow: []string{"/bin/true"}})
	w.awaitReady(3)

	// Some metrics exist only after a worker ran, a start request failed, a request was
	// refused, and a stream of events ended.
	w.upsert(&berthv1.Reservation{Job: "seen", Stage: "sim", Count: 1, Constraints: &berthv1.Constraints{Sku: "sim"}})
	w.upsert(&berthv1.Reservation{Job: "refused", Stage: "host", Count: 1, Constraints: &berthv1.Constraints{Sku: "host"},
		Task: &berthv1.Task{Command: "/bin/false"}, OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY})
	_, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "huge", Stage: "s", Count: model.MaxWorkers + 1})
	refusal(t, err, fault.Invalid, fault.ReasonTooLarge, "count")
	w.awaitWorkers("seen", berthv1.Event_WORKER_RUNNING, 1)
	w.awaitWorkers("refused", berthv1.Event_WORKER_FAILED, 1)
	w.upsert(&berthv1.Reservation{Job: "pending", Stage: "s", Count: 1, Constraints: &berthv1.Constraints{Sku: "none"}})

	expressions := monitored(t)
	if len(expressions) < 60 {
		t.Fatalf("only %d expressions", len(expressions))
	}
	until(t, func() string {
		samples := w.scrape()
		var missing []string
		for _, e := range expressions {
			missing = append(missing, e.missing(samples)...)
		}
		return strings.Join(missing, "\n")
	})
}

// expression is an expression of the dashboard or the alerts. labels are the labels of its
// result that a legend or a summary shows.
type expression struct {
	where, text string
	labels      []string
}

// monitored returns the expressions of the dashboard and of the alerts.
func monitored(t *testing.T) (list []expression) {
	t.Helper()
	read := func(name string, decode func([]byte, any) error, into any) {
		text, err := os.ReadFile(filepath.Join("../../deploy", name))
		if err == nil {
			err = decode(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	shown := func(pattern, text string) (labels []string) {
		for _, label := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			labels = append(labels, label[1])
		}
		return labels
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	read("grafana/berth.json", json.Unmarshal, &dashboard)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			list = append(list, expression{"panel " + panel.Title, target.Expr, shown(`\{\{(\w+)\}\}`, target.LegendFormat)})
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary string }
			}
		}
	}
	read("prometheus/berth.rules.yaml", yaml.Unmarshal, &alerts)
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			list = append(list, expression{"alert " + rule.Alert, rule.Expr, shown(`\$labels\.(\w+)`, rule.Annotations.Summary)})
		}
	}
	return list
}

var (
	selectors = regexp.MustCompile(`\b((?:berth|rpc_server|etcd)_[a-z_]+)(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
	grouping  = regexp.MustCompile(`\bby \(([\w, ]+)\)`)
)

// missing returns the metrics, the labels and the values of an expression that no sample
// has. Prometheus itself adds the label instance.
func (e expression) missing(samples map[string][]map[string]string) (missing []string) {
	report := func(format string, args ...any) { missing = append(missing, e.where+": "+fmt.Sprintf(format, args...)) }
	var names []string
	for _, selector := range selectors.FindAllStringSubmatch(e.text, -1) {
		name := selector[1]
		names = append(names, name)
		if len(samples[name]) == 0 {
			report("no metric %s", name)
		}
		for _, matcher := range matchers.FindAllStringSubmatch(selector[2], -1) {
			for value := range strings.SplitSeq(matcher[2], "|") {
				switch value {
				case "": // processes of older versions have no label
					continue
				case "$cluster": // the choice in the dashboard
					value = "default"
				}
				if !slices.ContainsFunc(samples[name], func(s map[string]string) bool { return s[matcher[1]] == value }) {
					report("no %s with %s=%q", name, matcher[1], value)
				}
			}
		}
	}
	if len(names) == 0 {
		report("no metric in %s", e.text)
	}
	labels := e.labels
	for _, by := range grouping.FindAllStringSubmatch(e.text, -1) {
		labels = append(labels, strings.Split(by[1], ", ")...)
	}
	// The metric after "or" only tells that there is a leader: it has none of the labels.
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.Contains(e.text, "or 0 * max by (cluster) ("+name+"{")
	})
	for _, label := range labels {
		for _, name := range names {
			if label == "cluster" && strings.HasPrefix(name, "etcd_") {
				continue // only Berth's processes have it
			}
			if label != "instance" && !slices.ContainsFunc(samples[name], func(s map[string]string) bool { return s[label] != "" }) {
				report("no %s with the label %s", name, label)
			}
		}
	}
	return missing
}

// scrape returns the labels of all samples of all processes, by metric.
func (w *world) scrape() map[string][]map[string]string {
	w.Helper()
	samples := map[string][]map[string]string{}
	for kind, processes := range w.fleet.Processes() {
		role := identity.Service
		switch kind {
		case "agents":
			continue
		case model.ServiceGateway:
			role = identity.Gateway
		}
		for _, p := range processes {
			parse(w.metrics(p.Addresses().HTTP, w.fleet.ClientTLS(role)), samples)
		}
	}
	// etcd runs in this process, and serves the default registry of Prometheus.
	etcd := httptest.NewRecorder()
	promhttp.Handler().ServeHTTP(etcd, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parse(etcd.Body.String(), samples)
	return samples
}

// metrics returns the metrics that a process serves.
func (w *world) metrics(address string, security *tls.Config) string {
	w.Helper()
	transport := &http.Transport{TLSClientConfig: security}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		w.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s, %v: %s", address, answer.Status, err, text)
	}
	return string(text)
}

var (
	sampleLine  = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	sampleLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// parse adds the labels of each sample in the text format of Prometheus, by metric.
func parse(text string, samples map[string][]map[string]string) {
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		labels := map[string]string{}
		for _, label := range sampleLabel.FindAllStringSubmatch(line[2], -1) {
			labels[label[1]] = label[2]
		}
		samples[line[1]] = append(samples[line[1]], labels)
	}
}
