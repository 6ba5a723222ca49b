package loop

import (
	"strings"
	"testing"

	"berth.dev/pkg/model"
)

// The stored content of a poisonous request contains no secret of its task. If two tasks
// differ only in a secret, their fingerprints differ.
func TestAFingerprintShowsNoSecretOfATask(t *testing.T) {
	type upsert struct {
		Job  string
		Spec model.Spec
	}
	request := func(secret string) upsert {
		return upsert{"bad", model.Spec{Task: model.Task{
			Command: "train", Args: []string{"--token=" + secret}, Env: map[string]string{"TOKEN": secret},
			Payload: []byte(secret),
		}}}
	}
	asked := request("hush")
	sum, content := fingerprint(asked)
	if !strings.Contains(content, "bad") || !strings.Contains(content, "train") {
		t.Errorf("kept of the request: %s", content)
	}
	for _, secret := range []string{"hush", "aHVzaA"} { // as text, and in the encoding that JSON uses for bytes
		if strings.Contains(content, secret) {
			t.Errorf("kept of the request: %s", content)
		}
	}
	if asked.Spec.Task.Env["TOKEN"] != "hush" || len(asked.Spec.Task.Args) != 1 {
		t.Errorf("the request has changed: %+v", asked)
	}
	if again, _ := fingerprint(request("hush")); again != sum {
		t.Error("the same request has another fingerprint")
	}
	if other, _ := fingerprint(request("another")); other == sum {
		t.Error("another request has the same fingerprint")
	}
}

// The tenants of a call are not part of the request, so a poisonous request stays
// quarantined when the tenants change.
func TestAFingerprintIgnoresTenants(t *testing.T) {
	u := model.Upsert{Key: model.Key{Job: "bad"}}
	sum, content := fingerprint(u)
	u.Tenants = model.NewTenants([]model.Tenant{{Name: "team", Prefix: "bad"}})
	if got, text := fingerprint(u); got != sum || text != content {
		t.Errorf("the content is %s, without tenants %s", text, content)
	}
}
