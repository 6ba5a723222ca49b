package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

const rulesFile = "../berth.rules.yaml"

// tests is a file of tests in the format of promtool: the part of the format that
// berth_test.yaml uses.
type tests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name        string
		Interval    model.Duration
		InputSeries []struct{ Series, Values string } `yaml:"input_series"`
		Alerts      []expectation                     `yaml:"alert_rule_test"`
	}
}

// expectation has the alerts of one rule that fire at a time.
type expectation struct {
	EvalTime  model.Duration `yaml:"eval_time"`
	AlertName string
	Alerts    []alert `yaml:"exp_alerts"`
}

type alert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// TestAlerts plays berth_test.yaml. Every alert must fire in one case and not fire in
// another one.
func TestAlerts(t *testing.T) {
	text, err := os.Open("../berth_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	var file tests
	decoder := yaml.NewDecoder(text)
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			series := fmt.Sprintf("load %v\n", test.Interval)
			for _, s := range test.InputSeries {
				series += fmt.Sprintf("  %s %s\n", s.Series, s.Values)
			}
			firing := play(t, series, time.Duration(test.Interval), time.Duration(file.EvaluationInterval), test.Alerts)
			for i, want := range test.Alerts {
				for _, a := range want.Alerts {
					a.Labels[labels.AlertName] = want.AlertName
				}
				if diff := cmp.Diff(inOrder(want.Alerts), inOrder(firing[i])); diff != "" {
					t.Errorf("%s at %v: %s", want.AlertName, want.EvalTime, diff)
				}
				fires[want.AlertName] = fires[want.AlertName] || len(want.Alerts) > 0
				silent[want.AlertName] = silent[want.AlertName] || len(want.Alerts) == 0
			}
		})
	}
	for _, group := range load(t, time.Minute, &rules.ManagerOptions{}) {
		for _, rule := range group.Rules() {
			if !fires[rule.Name()] || !silent[rule.Name()] {
				t.Errorf("%s: fires in a test: %t, does not fire in a test: %t", rule.Name(), fires[rule.Name()],
					silent[rule.Name()])
			}
		}
	}
}

var language = parser.NewParser(parser.Options{})

// load returns the groups of the rules, which are evaluated with the options.
func load(t *testing.T, interval time.Duration, options *rules.ManagerOptions) map[string]*rules.Group {
	t.Helper()
	options.Logger, options.Parser, options.Context = promslog.NewNopLogger(), language, t.Context()
	options.NotifyFunc = func(context.Context, string, ...*rules.Alert) {}
	groups, errs := rules.NewManager(options).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, rulesFile)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return groups
}

// play evaluates the rules on the series, and returns the alerts that fire at the time of
// each expectation.
func play(t *testing.T, series string, interval, every time.Duration, at []expectation) [][]alert {
	t.Helper()
	suite, err := promqltest.NewLazyLoader(series, promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: language,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { suite.Close() })
	suite.SubqueryInterval = every
	groups := load(t, interval, &rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), AppendableV2: suite.Storage(),
	})
	var end time.Duration
	for _, e := range at {
		end = max(end, time.Duration(e.EvalTime))
	}
	firing := make([][]alert, len(at))
	for now := time.Duration(0); now <= end; now += every {
		suite.WithSamplesTill(time.Unix(0, 0).Add(now), func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Eval(suite.Context(), time.Unix(0, 0).UTC().Add(now))
				for _, rule := range group.AlertingRules() {
					if err := rule.LastError(); err != nil {
						t.Fatalf("%s: %v", rule.Name(), err)
					}
					for i, e := range at {
						if time.Duration(e.EvalTime) == now && e.AlertName == rule.Name() {
							firing[i] = append(firing[i], firingOf(rule)...)
						}
					}
				}
			}
		})
	}
	return firing
}

func firingOf(rule *rules.AlertingRule) (list []alert) {
	for _, a := range rule.ActiveAlerts() {
		if a.State == rules.StateFiring {
			list = append(list, alert{a.Labels.Map(), a.Annotations.Map()})
		}
	}
	return list
}

// inOrder returns alerts in order of their labels.
func inOrder(alerts []alert) []alert {
	list := append([]alert{}, alerts...)
	slices.SortFunc(list, func(a, b alert) int { return strings.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels)) })
	return list
}

// TestAlertsSayWhatToDo checks that each alert has a severity, a summary, a runbook that
// exists.
func TestAlertsSayWhatToDo(t *testing.T) {
	var checked int
	for _, group := range load(t, time.Minute, &rules.ManagerOptions{}) {
		for _, rule := range group.AlertingRules() {
			checked++
			page, section, _ := strings.Cut(rule.Annotations().Get("runbook_url"), "#")
			page, ours := strings.CutPrefix(page, "https://berth.dev/docs/how-to/runbooks/")
			text, err := os.ReadFile("../../../docs/how-to/runbooks/" + page)
			heading := strings.ReplaceAll(section, "-", " ")
			switch {
			case !ours || err != nil:
				t.Errorf("%s: no runbook: %v", rule.Name(), err)
			case section != "" && !strings.Contains(strings.ToLower(string(text)), "\n## "+heading+"\n"):
				t.Errorf("%s: %s has no section %s", rule.Name(), page, section)
			}
			if severity := rule.Labels().Get("severity"); severity != "critical" && severity != "warning" {
				t.Errorf("%s: severity %q", rule.Name(), severity)
			}
			if rule.Annotations().Get("summary") == "" {
				t.Errorf("%s: no summary", rule.Name())
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d alerts", checked)
	}
}

// TestDashboardExpressionsAreValid parses the expressions of the dashboard.
func TestDashboardExpressionsAreValid(t *testing.T) {
	text, err := os.ReadFile("../../grafana/berth.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if _, err := language.ParseExpr(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")); err != nil {
				t.Errorf("panel %q: %s: %v", panel.Title, target.Expr, err)
			}
		}
	}
}
