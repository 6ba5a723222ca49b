package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
)

// leafHost is the host of the agents of the leaf, so that it differs from that of all agents of cells.
const leafHost = "127.0.0.77"

// The gang of workers in a cell of a cell is that of the root: after a restart of one of them, the files of
// all list its replacement, and then the worker that was given up. The root lists the hosts of the leaf.
func TestGangInCells(t *testing.T) {
	t.Parallel()
	leaf := start(t, fleet.Config{LogLevel: "warn", Place: func(name string) (fleet.Place, error) {
		if name == "host" {
			return fleet.Place{Host: leafHost}, nil
		}
		return fleet.Place{}, nil
	}})
	if err := leaf.fleet.StartAgent(leaf.ctx, fleet.Agent{ID: "host", Slots: 3}); err != nil {
		t.Fatal(err)
	}
	leaf.awaitReady(1)
	zone, root := cluster(t, "zone", 0, 0, 1), cluster(t, "root", 0, 0, 1)
	zone.startCells(map[string]*world{"leaf": leaf})
	root.startCells(map[string]*world{"zone": zone}, "--into", "cells")

	// Each worker copies its file all the time. Worker 1 fails each time that a file with its number appears.
	dir := t.TempDir()
	script := `while sleep 0.05; do cp "$BERTH_GANG_FILE" "$0/copy-$BERTH_WORKER_INDEX" && mv "$0/copy-$BERTH_WORKER_INDEX" "$0/$BERTH_WORKER_INDEX"
		[ -e "$0/fail-$BERTH_WORKER_INDEX-$BERTH_WORKER_NUMBER" ] && exit 1; done; exit 0`
	gang := inCells("train", "gpu", 3)
	gang.Task = &berthv1.Task{Command: "/bin/sh", Args: []string{"-c", script, dir}}
	gang.Restart, gang.MaxRestarts = proto.String("ON_FAILURE"), proto.Int32(1)
	root.upsert(gang)
	awaitFiles := func(what string, want func(f gangFile) bool, indexes ...int) {
		t.Helper()
		for _, index := range indexes {
			until(t, func() string {
				var file gangFile
				text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(index)))
				if err == nil {
					err = json.Unmarshal(text, &file)
				}
				if err != nil || file.Workers != 3 || !want(file) {
					return fmt.Sprintf("%s: the file of worker %d is %s, %v", what, index, text, err)
				}
				return ""
			})
		}
	}
	all := func(number int32) func(gangFile) bool {
		return func(f gangFile) bool {
			if len(f.Members) != 3 || len(f.Waiting)+len(f.GaveUp) > 0 || f.Members[1].Number != number {
				return false
			}
			for _, m := range f.Members {
				if m.Host != leafHost || m.Executor != "host" {
					return false
				}
			}
			return true
		}
	}
	awaitFiles("all are placed", all(1), 0, 1, 2)
	fail := func(number int) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("fail-1-%d", number)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fail(1)
	awaitFiles("worker 1 was restarted", all(2), 0, 1, 2)
	list, err := root.client.Members(root.ctx, &berthv1.ListMembersRequest{Job: "train", Stage: "gpu"})
	if err != nil || len(list.GetMembers()) != 3 {
		t.Fatalf("the root lists %v, %v", list, err)
	}
	for _, m := range list.GetMembers() {
		if m.GetHost() != leafHost || m.GetExecutor() != "zone" {
			t.Errorf("the root lists %v", m)
		}
	}
	fail(2)
	awaitFiles("worker 1 was given up", func(f gangFile) bool {
		return len(f.Waiting) == 0 && len(f.GaveUp) == 1 && f.GaveUp[0].First == 1
	}, 0, 2)
	if _, err := root.client.CancelJob(root.ctx, "train"); err != nil {
		t.Fatal(err)
	}
	leaf.awaitFree()
}

// gangFile is the file that BERTH_GANG_FILE names.
type gangFile struct {
	Workers         int
	Members         []*berthv1.Member
	Waiting, GaveUp []*berthv1.IndexRange
}
