// Package storetest is the conformance suite of store.Store. Both store.Fake and a real
// etcd must pass it, so that the fake can replace etcd in tests. If the two differ, the
// fake is wrong.
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
	// Compact deletes all history before a revision, and returns when reads and watches show
	// the effect.
	Compact func(t *testing.T, revision int64)
}

// Run runs the suite. It calls open once for each test. open must return an empty store
// that no other test uses.
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
		{"ContextOver", testCancelledContext},
		{"WatchOrder", testWatchOrder},
		{"WatchFromPast", testWatchFromPast},
		{"WatchFarBehind", testWatchFarBehind},
		{"WatchCompacted", testWatchCompacted},
		{"WatchProgress", testWatchProgress},
		{"WatchProgressOfAQuietStore", testWatchProgressOfAQuietStore},
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

// patience is the maximum time that a test waits. The default timeout of a call is two
// seconds, which may be too short on a busy machine.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// must applies operations in one transaction without compares and returns its revision.
func must(t *testing.T, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	res, err := s.Txn(patient(t), store.Txn{Then: ops})
	if err != nil || !res.Succeeded {
		t.Fatalf("txn: %+v, %v", res, err)
	}
	return res.Revision
}

func put(key, value string) store.Op { return store.Put(key, []byte(value)) }

// get reads a key. It returns the zero KV if the key does not exist.
func get(t *testing.T, s store.Store, key string) store.KV {
	t.Helper()
	kv, _, err := s.Get(patient(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// describe formats changes on one line, without revisions.
func describe(changes []store.Change) string {
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
