package compose

import (
	"testing"

	berthv1 "berth.dev/api/berth/v1"
)

// If several services quarantine one record, the list has only the finding of the service
// that writes the record.
func TestOneRecordIsReportedOnce(t *testing.T) {
	poison := func(service, object string) *berthv1.Finding {
		return &berthv1.Finding{Kind: "POISON", Object: object, Service: service, Message: "cannot be read"}
	}
	got := oncePerObject([]*berthv1.Finding{
		poison("registry", "executors/records/h"), poison("registry", "registry/ready"), poison("registry", "model.Upsert"),
		{Kind: "LOST", Object: "h", Service: "executor-state"}, {Kind: "LOST", Object: "h", Service: "executor-state"},
		poison("executor-state", "executors/records/h"), poison("executor-state", "executors/records/h"),
		poison("assigner", "executors/records/h"), poison("assigner", "registry/ready"),
	})
	want := []struct{ service, object, message string }{
		{"executor-state", "executors/records/h", "cannot be read; also quarantined by the assigner and the registry"},
		{"registry", "registry/ready", "cannot be read; also quarantined by the assigner"},
		{"registry", "model.Upsert", "cannot be read"}, {"executor-state", "h", ""}, {"executor-state", "h", ""},
	}
	if len(got) != len(want) {
		t.Fatalf("%d findings: %v", len(got), got)
	}
	for i, w := range want {
		if f := got[i]; f.GetService() != w.service || f.GetObject() != w.object || f.GetMessage() != w.message {
			t.Errorf("finding %d is %v, want %v", i, f, w)
		}
	}
}
