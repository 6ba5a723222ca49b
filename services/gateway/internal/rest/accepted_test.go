package rest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
)

func TestErrorsNameTheFieldAndItsValues(t *testing.T) {
	const up = "/v1/jobs/j/stages/s/reservation"
	const whole32, whole64 = "must be a whole number from 0 to 2147483647", "must be a whole number of at most 63 bits"
	const states = "QUEUED, LEASING, ASSIGNING, ACTIVE, CANCELLING, COMPLETED, CANCELLED, EXPIRED, FAILED, REPLACED, HELD"
	const duration = `must be a duration such as "30s", "10m" or "1h30m"`
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/v1/reservations?pageSize=abc", "", `pageSize: ` + whole32 + `, got "abc"`},
		{"GET", "/v1/executors?state=ready", "", `state: must be one of REGISTERED, READY, UNREACHABLE, LOST, got "ready"`},
		{"GET", "/v1/reservations?state=queued", "", "state: must be one of " + states + `, got "queued"`},
		{"GET", "/v1/reservations?state=OFFERING", "", "state: must be one of " + states + `, got "OFFERING"`},
		{"GET", "/v1/reservations?state=STATE_UNSPECIFIED", "",
			"state: must be one of " + states + `, got "STATE_UNSPECIFIED"`},
		{"GET", "/v1/reservations?state=0", "", "state: must be one of " + states + `, got "0"`},
		{"GET", "/v1/reservations?state=13", "", "state: must be one of " + states + `, got "13"`},
		{"GET", "/v1/reservations?job=a&job=b", "", "job: must be given once, got 2 values"},
		{"GET", "/v1/reservations?job=%ff", "", "job: must be a string of valid UTF-8"},
		{"GET", "/v1/reservations?job=%zz", "", `the query cannot be read: "%zz" is not a valid escape`},
		{"GET", "/v1/jobs/%ff/stages/s/reservation", "", "job: must be valid UTF-8"},
		{"GET", "/v1/jobs/j/stages/%ff/reservation", "", "stage: must be valid UTF-8"},
		{"GET", "/v1/jobs/%ff/events", "", "job: must be valid UTF-8"},
		{"GET", "/%ff", "", "path: must be valid UTF-8"},
		{"DELETE", up + "?ifEpoch=x", "", `ifEpoch: ` + whole64 + `, got "x"`},
		{"PUT", up, "{", "the body must be a JSON object: it ends too early"},
		{"PUT", up, "a=b", "the body must be a JSON object: invalid character 'a'"},
		{"PUT", up, "[]", "the body must be a JSON object"},
		{"PUT", up, `{"workers":1}`, "workers: must be a list, got 1"},
		{"PUT", up, `{"workers":[[]]}`, "workers[0]: must be an object, got a list"},
		{"PUT", up, `{"workers":[{},{"index":1.5}]}`, "workers[1].index: " + whole32 + ", got 1.5"},
		{"PUT", up, `{"count":"x"}`, "count: " + whole32 + `, got "x"`},
		{"PUT", up, `{"priority":{"tier":"x"}}`,
			`priority.tier: must be a whole number from -2147483648 to 2147483647, got "x"`},
		{"PUT", up, `{"labels":{"a.b":1}}`, "labels.a.b: must be a string of valid UTF-8, got 1"},
		{"PUT", up, `{"constraints":{"resources":{"cpu":"x"}}}`,
			`constraints.resources.cpu: must be a quantity such as 500m or 1500m, got "x"`},
		{"PUT", "/v1/skus/s", `{"resources":{"memory":1.5}}`,
			"resources.memory: must be a quantity such as 4Gi or 512Mi, got 1.5; a number without a suffix is a whole number of bytes"},
		{"PUT", "/v1/skus/s", `{"resources":{"a.b":true}}`, "resources.a.b: must be a whole number such as 2, got true"},
		{"PUT", "/v1/skus/s", `{"resources":[]}`, "resources: must be an object, got a list"},
		{"PUT", up, `{"start":"TOGETHR"}`, `start: must be one of PROGRESSIVE, TOGETHER, got "TOGETHR"`},
		{"PUT", up, `{"queueTimeout":"soon"}`, `queueTimeout: ` + duration + `, got "soon"`},
		{"PUT", up, `{"queueTimeout":10}`, "queueTimeout: " + duration + ", got 10"},
	} {
		code, text := ask(t, &calls{}, c.method, c.path, c.body)
		var answer struct{ Message string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		if code != 400 || !strings.HasPrefix(answer.Message, c.want) {
			t.Errorf("%s %s %s: got %d %s, want %s", c.method, c.path, c.body, code, answer.Message, c.want)
		}
	}
}

func TestDurationsInGosForm(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond,
		"250ms": time.Second / 4, "-2m": -2 * time.Minute,
	} {
		c := &calls{}
		if code, answer := ask(t, c, "PUT", "/v1/jobs/j/stages/s/reservation",
			`{"labels": {"é": "10m"}, "queueTimeout": "`+text+`"}`); code != 200 {
			t.Errorf("%s: %d %s", text, code, answer)
			continue
		}
		if got := c.in.(*berthv1.UpsertReservationRequest).GetReservation(); got.GetQueueTimeout().AsDuration() != want ||
			got.GetLabels()["é"] != "10m" {
			t.Errorf("%s became %v", text, got)
		}
	}
}

// Every field for a duration accepts Go's form, and answers have seconds.
func TestDurationsInEveryField(t *testing.T) {
	c := &calls{answer: &berthv1.Reservation{QueueTimeout: durationpb.New(90 * time.Second)}}
	code, answer := ask(t, c, "PUT", "/v1/jobs/j/stages/s/reservation",
		`{"queueTimeout": "1m30s", "task": {"stopGrace": "5m", "startTimeout": "1h"}}`)
	if code != 200 || !strings.Contains(strings.ReplaceAll(answer, " ", ""), `"queueTimeout":"90s"`) {
		t.Errorf("%d %s", code, answer)
	}
	r := c.in.(*berthv1.UpsertReservationRequest).GetReservation()
	if r.GetQueueTimeout().AsDuration() != 90*time.Second || r.GetTask().GetStopGrace().AsDuration() != 5*time.Minute ||
		r.GetTask().GetStartTimeout().AsDuration() != time.Hour {
		t.Errorf("got %v", r)
	}
	c = &calls{answer: &berthv1.Pool{LostAfter: durationpb.New(300 * time.Second)}}
	code, answer = ask(t, c, "PUT", "/v1/pools/night", `{"lostAfter": "5m"}`)
	if code != 200 || !strings.Contains(strings.ReplaceAll(answer, " ", ""), `"lostAfter":"300s"`) ||
		c.in.(*berthv1.PutPoolRequest).GetPool().GetLostAfter().AsDuration() != 5*time.Minute {
		t.Errorf("%d %s, got %v", code, answer, c.in)
	}
}

// FuzzREST checks that every rejected request gets one of Berth's reasons.
func FuzzREST(f *testing.F) {
	const up = "/v1/jobs/j/stages/s/reservation"
	for _, seed := range [][3]string{
		{"PUT", up, `{"workers":[{"index":0},{"index":"x"}],"queueTimeout":"10m","labels":{"a":"b"}}`},
		{"PUT", up + "?ifEpoch=7", "{\"workers\":[\n{\"index\":99999999999}]}"},
		{"GET", "/v1/reservations?pageSize=5&state=QUEUED", ""},
		{"GET", "/v1/jobs/%ff/stages/s/reservation", ""},
		{"DELETE", up + "?requestId=%zz", ""},
		{"POST", "/v1/executors:disable", `{"ids":["a"]}`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, ok := request(method, path, body)
		if !ok {
			t.Skip()
		}
		code, text := serveFuzz(t, r)
		if code >= 500 {
			t.Fatalf("%d %s", code, text)
		}
		if code >= 400 && !strings.Contains(text, `"reason"`) {
			t.Fatalf("%d without a reason: %s", code, text)
		}
	})
}

// request returns the request that an HTTP server would parse from the text. It returns
// false if the text is invalid.
func request(method, path, body string) (*http.Request, bool) {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n\t") || strings.ContainsAny(method, " \r\n\t") {
		return nil, false
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: example.com\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body))))
	return r, err == nil
}

func serveFuzz(t *testing.T, r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	handler(t, &calls{}, "example.com").ServeHTTP(w, r)
	return w.Code, w.Body.String()
}
