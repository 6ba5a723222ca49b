// Package storetest is the conformance suite of store.Store. Whatever passes it
// can stand in for etcd: the fake runs it, a real etcd runs it, and where they
// differ the fake is wrong.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/store"
)

// Subject is one empty store under test.
type Subject struct {
	store.Store
	// Compact forgets all history before a revision, and returns when that shows.
	Compact func(t *testing.T, revision int64)
}

// Run runs the suite; open is called once for each test, with a prefix-free
// store nobody else uses.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"Compares", testCompares},
		{"CompareOnKeyWritten", testCompareOnKeyWritten},
		{"CreateAndModRevisions", testRevisions},
		{"DeleteOfNothing", testDeleteOfNothing},
		{"DeleteRange", testDeleteRange},
		{"Limits", testLimits},
		{"LeaseKeys", testLeaseKeys},
		{"LeaseExpires", testLeaseExpires},
		{"LeaseMissing", testLeaseMissing},
		{"PutTakesKeyOffLease", testPutTakesKeyOffLease},
		{"Pages", testPages},
		{"Keys", testKeys},
		{"RangeSkips", testRangeSkips},
		{"RangeCompacted", testRangeCompacted},
		{"Streams", testStreams},
		{"ContextOver", testContextOver},
		{"WatchOrder", testWatchOrder},
		{"WatchFromPast", testWatchFromPast},
		{"WatchFarBehind", testWatchFarBehind},
		{"WatchCompacted", testWatchCompacted},
		{"WatchProgress", testWatchProgress},
		{"WatchTryNext", testWatchTryNext},
		{"View", testView},
		{"ViewCompacted", testViewCompacted},
		{"ViewWant", testViewWant},
		{"ViewUnderLoad", testViewUnderLoad},
		{"Commit", testCommit},
		{"CommitConflict", testCommitConflict},
		{"CommitFenced", testCommitFenced},
		{"CommitLeaseMissing", testCommitLeaseMissing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// patience is how long a test waits for what must come. A call without a deadline of
// its own has two seconds, which a machine that is busy may well take.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// must carries out operations without conditions and answers the revision.
func must(t *testing.T, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	res, err := s.Txn(patient(t), store.Txn{Then: ops})
	if err != nil || !res.Succeeded {
		t.Fatalf("txn: %+v, %v", res, err)
	}
	return res.Revision
}

func put(key, value string) store.Op { return store.Put(key, []byte(value)) }

// get reads a key; the zero KV when it is not there.
func get(t *testing.T, s store.Store, key string) store.KV {
	t.Helper()
	kv, _, err := s.Get(patient(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// tell prints changes as a transcript line, without revisions.
func tell(changes []store.Change) string {
	out := ""
	for i, c := range changes {
		if i > 0 {
			out += " "
		}
		if c.Deleted {
			out += "-" + c.Key
		} else {
			out += fmt.Sprintf("%s=%s", c.Key, c.Value)
		}
	}
	return out
}
