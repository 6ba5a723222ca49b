package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"github.com/google/go-cmp/cmp"
)

// An amount without a suffix is a number of base units. An amount with a suffix is a
// quantity.
func TestResourcesWithASuffixAreQuantities(t *testing.T) {
	want := map[string]int64{"cpu": 500, "memory": 4 << 30, "gpu": 2, "disk": 7}
	resources := `"resources" : {"cpu" : "500m", "memory":"4Gi" ,"gpu": 2, "disk": "7"}`
	c := &calls{}
	code, answer := ask(t, c, "PUT", "/v1/jobs/j/stages/s/reservation",
		`{"labels": {"resources": "2k"}, "task": {"env": {"resources": "4Gi"}}, "constraints": {`+resources+`, "sku": "2k"}, "count": 1}`)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	r := c.in.(*berthv1.UpsertReservationRequest).Reservation
	if diff := cmp.Diff(want, r.Constraints.Resources); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if r.Constraints.Sku != "2k" || r.Task.Env["resources"] != "4Gi" || r.Labels["resources"] != "2k" {
		t.Errorf("another text was changed: %v", r)
	}
	if code, answer := ask(t, c, "PUT", "/v1/skus/s",
		`{`+resources+`, "attributes": {"cpu": "2k"}}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	sku := c.in.(*berthv1.PutSkuRequest).Sku
	if diff := cmp.Diff(want, sku.Resources); diff != "" || sku.Attributes["cpu"] != "2k" {
		t.Errorf("-want +got:\n%s, attributes %v", diff, sku.Attributes)
	}
	for amount, want := range map[string]int64{
		`"2000"`: 2000, `2000`: 2000, `2e3`: 2000, `100`: 100, `"2m"`: 2, `"99m"`: 99, `0`: 0, `"0"`: 0, `-0.0`: 0, `-5`: -5,
	} {
		if code, answer := ask(t, c, "PUT", "/v1/jobs/j/stages/s/reservation",
			`{"count": 1, "constraints": {"resources": {"gpu": 1, "cpu": `+amount+`}}}`); code != http.StatusOK {
			t.Errorf("cpu %s: %d %s", amount, code, answer)
		} else if cpu := c.in.(*berthv1.UpsertReservationRequest).Reservation.Constraints.Resources["cpu"]; cpu != want {
			t.Errorf("cpu %s is %d base units, want %d", amount, cpu, want)
		}
	}
}

// A caller can send back an answer, which has base units as strings.
func TestAnAnswerWithFewBaseUnitsIsAccepted(t *testing.T) {
	const path, request = "/v1/jobs/j/stages/s/reservation", `{"count": 1, "constraints": {"resources": {"cpu": %s}}%s}`
	const updated = `, "updatedAt": "2026-11-23T23:17:57.668421542Z"`
	c := &calls{}
	if code, answer := ask(t, c, "PUT", path, fmt.Sprintf(request, `"50"`, updated)); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	} else if cpu := c.in.(*berthv1.UpsertReservationRequest).Reservation.Constraints.Resources["cpu"]; cpu != 50 {
		t.Errorf("%d base units, want 50", cpu)
	}
	for _, other := range []string{fmt.Sprintf(request, `50`, updated), fmt.Sprintf(request, `"50"`, `, "updatedAt": null`)} {
		if code, answer := ask(t, c, "PUT", path, other); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", other, code, answer)
		}
	}
}

func TestQuantitiesThatDoNotFitBaseUnitsAreRejected(t *testing.T) {
	const few = "must be at least 100 or have a suffix, got "
	const cores = "; a number without a suffix is a whole number of thousandths of a core"
	for amount, want := range map[string]string{
		`"0.5m"`:  "must be a whole number of thousandths of a core, got 0.5m",
		`"5000k"`: "must be at most 4096 cores, got 5000k; a number without a suffix is in thousandths of a core, and 2000m is two cores",
		`"zwei"`:  `must be a quantity such as 500m or 1500m, got "zwei"` + cores,
		`"1.5"`:   `must be a quantity such as 500m or 1500m, got "1.5"` + cores,
		`1.5`:     `must be a quantity such as 500m or 1500m, got 1.5` + cores,
		`""`:      `must be a quantity such as 500m or 1500m, got ""` + cores,
		`{}`:      `must be a quantity such as 500m or 1500m, got an object` + cores,
		`"2"`:     few + `2; write "2000m" for cores or "2m" for thousandths of a core`,
		`8`:       few + `8; write "8000m" for cores or "8m" for thousandths of a core`,
		`9.9e1`:   few + `99; write "99000m" for cores or "99m" for thousandths of a core`,
		`"-500m"`: "must not be negative, got -500m",
	} {
		code, answer := ask(t, &calls{}, "PUT", "/v1/jobs/j/stages/s/reservation",
			`{"count": 1, "constraints": {"resources": {"gpu": 1, "cpu": `+amount+`}}}`)
		var body struct {
			Details []struct {
				FieldViolations []struct{ Field, Description string }
			}
		}
		if err := json.Unmarshal([]byte(answer), &body); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, d := range body.Details {
			for _, v := range d.FieldViolations {
				found = found || v.Field == "constraints.resources.cpu" && v.Description == want
			}
		}
		if code != http.StatusBadRequest || !found {
			t.Errorf("%s: %d %s, want %s", amount, code, answer, want)
		}
	}
}

// FuzzQuantitiesInABody checks that no body causes an internal error.
func FuzzQuantitiesInABody(f *testing.F) {
	for _, body := range []string{
		`{"constraints": {"resources": {"cpu": "500m"}}}`, `{"resources": {"memory": "4Gi", "cpu": 2}}`,
		`{"resources": "4Gi"}`,
		`{"resources": ["4Gi"]}`, `[{"resources": {"cpu": "2k"}}]`, `{"resources": {"cpu": "1e99k"}}`, `{"resources"`, ``,
		`{"resources": {"a": {"cpu": "2k"}}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		code, answer := ask(t, &calls{}, "PUT", "/v1/jobs/j/stages/s/reservation", body)
		if code >= 500 {
			t.Fatalf("%d %s", code, answer)
		}
	})
}
