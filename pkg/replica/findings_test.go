package replica_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
)

// Findings of one kind do not hide other findings. A service lists the first findings of
// each kind in order and counts the others.
func TestFindingsOfEachKindAreLimited(t *testing.T) {
	at := time.Unix(1000, 0)
	var found []replica.Found
	for i := range 40_000 {
		found = append(found, replica.Found{Kind: "MANY", Object: fmt.Sprint(i),
			Since: at.Add(time.Duration(i%300) * time.Second)})
		if i%10_000 == 0 {
			found = append(found, replica.Found{Kind: "FEW", Object: fmt.Sprint(i), Since: at})
		}
	}
	status := loop.Status{Quarantined: []loop.Quarantined{{Object: "a record", Since: at}}}
	answer := replica.Findings(status, model.ServiceAssigner, found)
	of := map[string][]*berthv1.Finding{}
	for _, f := range answer.GetFindings() {
		if f.GetService() != model.ServiceAssigner {
			t.Errorf("%v has service %q", f, f.GetService())
		}
		of[f.GetKind()] = append(of[f.GetKind()], f)
	}
	if len(of["FEW"]) != 4 || len(of[loop.FindingPoison]) != 1 || len(of["MANY"]) != 201 {
		t.Fatalf("%d FEW, %d POISON, %d MANY", len(of["FEW"]), len(of[loop.FindingPoison]), len(of["MANY"]))
	}
	for i, f := range of["MANY"][:200] {
		if f.GetObject() != fmt.Sprint(i) {
			t.Fatalf("finding %d is about %s", i, f.GetObject())
		}
	}
	others := of["MANY"][200]
	if others.GetObject() != model.OtherFindings || others.GetMessage() != "39800 more of this kind" ||
		!others.GetSince().AsTime().Equal(at) ||
		!strings.Contains(others.GetAction(), "assigner") {
		t.Errorf("the others are %v", others)
	}
}

func TestFindingsUpToTheLimitAreAllListed(t *testing.T) {
	found := slices.Repeat([]replica.Found{{Kind: "SOME", Object: "o"}}, 200)
	for _, f := range replica.Findings(loop.Status{}, model.ServiceRegistry, found).GetFindings() {
		if f.GetObject() != "o" {
			t.Errorf("found %v", f)
		}
	}
}

// The texts of findings are limited, so that findings of all kinds fit in one message.
func TestTextsOfFindingsAreLimited(t *testing.T) {
	long := strings.Repeat("€", 1<<20)
	var found []replica.Found
	for kind := range 8 {
		for range 300 {
			found = append(found, replica.Found{Kind: fmt.Sprint("KIND_", kind), Object: long, Message: long, Action: long})
		}
	}
	status := loop.Status{Panics: slices.Repeat([]loop.Panic{{Peer: long, Message: long}}, 100)}
	for range 500 {
		status.Quarantined = append(status.Quarantined, loop.Quarantined{Object: long, Message: long, Action: long})
	}
	answer := replica.Findings(status, model.ServiceExecutorState, found)
	if size := proto.Size(answer); size > rpc.PeerMessageLimit {
		t.Errorf("%d findings take %d bytes", len(answer.GetFindings()), size)
	}
	for _, f := range answer.GetFindings() {
		for _, text := range []string{f.GetObject(), f.GetMessage(), f.GetAction()} {
			if !utf8.ValidString(text) {
				t.Fatalf("not UTF-8: %q", text)
			}
		}
	}
	if m := answer.GetFindings()[0].GetMessage(); len(m) < 2000 || !strings.HasSuffix(m, "€…") {
		t.Errorf("a text is cut to %d bytes: %q", len(m), m)
	}
}
