package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/store"
)

func testCompares(t *testing.T, s Subject) {
	created := must(t, s, put("a", "1"))
	changed := must(t, s, put("a", "2"))
	for _, c := range []struct {
		compare store.Compare
		holds   bool
	}{
		{store.Absent("a"), false},
		{store.Absent("b"), true},
		{store.CreatedAt("a", created), true},
		{store.CreatedAt("a", changed), false},
		{store.CreatedAt("b", created), false},
		{store.ModifiedAt("a", changed), true},
		{store.ModifiedAt("a", created), false},
		{store.HasValue("a", []byte("2")), true},
		{store.HasValue("a", []byte("1")), false},
		{store.HasValue("b", nil), false},
		{store.HasValue("b", []byte("2")), false},
	} {
		res, err := s.Txn(patient(t), store.Txn{If: []store.Compare{c.compare}, Else: []string{"a", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		if res.Succeeded != c.holds {
			t.Errorf("%+v: holds %v, want %v", c.compare, res.Succeeded, c.holds)
		}
		if res.Revision != changed {
			t.Errorf("%+v: a read changed the revision to %d", c.compare, res.Revision)
		}
		kv, found := res.Got["a"]
		if !c.holds && (!found || string(kv.Value) != "2" || kv.Create != created || kv.Mod != changed || len(res.Got) != 1) {
			t.Errorf("%+v: else read %+v", c.compare, res.Got)
		}
		if kv := get(t, s, c.compare.Key); c.compare.Holds(kv, kv.Key != "") != c.holds {
			t.Errorf("%+v: Holds disagrees with the store", c.compare)
		}
	}
}

func testCompareOnKeyWritten(t *testing.T, s Subject) {
	first := must(t, s, put("a", "1"))
	txn := store.Txn{If: []store.Compare{store.ModifiedAt("a", first)}, Then: []store.Op{put("a", "2")}}
	for i, want := range []bool{true, false} {
		if res, err := s.Txn(patient(t), txn); err != nil || res.Succeeded != want {
			t.Fatalf("attempt %d: %+v, %v", i, res, err)
		}
	}
}

func testRevisions(t *testing.T, s Subject) {
	first := must(t, s, put("a", "1"), put("b", "1"))
	second := must(t, s, put("a", "2"))
	if second != first+1 {
		t.Fatalf("revisions %d, %d", first, second)
	}
	if a := get(t, s, "a"); a.Create != first || a.Mod != second || string(a.Value) != "2" {
		t.Errorf("a = %+v", a)
	}
	must(t, s, store.Delete("a"))
	third := must(t, s, put("a", "3"))
	if a := get(t, s, "a"); a.Create != third || a.Mod != third {
		t.Errorf("a put again = %+v, want it created at %d", a, third)
	}
	if b := get(t, s, "b"); b.Create != first || b.Mod != first {
		t.Errorf("b = %+v", b)
	}
}

func testDeleteOfNothing(t *testing.T, s Subject) {
	before := must(t, s, put("a", "1"))
	if after := must(t, s, store.Delete("b")); after != before {
		t.Errorf("deleting no key changed the revision from %d to %d", before, after)
	}
}

// The delete of a range removes all keys of the range in one revision, with and without
// an etcd lease. Keys outside the range stay.
func testDeleteRange(t *testing.T, s Subject) {
	lease, err := s.Grant(patient(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, put("a/", "1"), put("a/1", "1"), store.Op{Key: "a/2", Value: []byte("1"), Lease: lease.ID}, put("a0", "1"))
	w := s.Watch("a", must(t, s, put("x", "1"))+1)
	defer w.Close()
	rev := must(t, s, store.DeleteRange("a/", "a0"), put("a", "floor"))
	b, err := w.Next(patient(t))
	if err != nil || b.Revision != rev || describe(b.Changes) != "-a/ -a/1 -a/2 a=floor" {
		t.Errorf("watched %+v, %v", b, err)
	}
	if kvs, _, err := store.Range(patient(t), s, "a"); err != nil || len(kvs) != 2 || kvs[0].Key != "a" ||
		kvs[1].Key != "a0" {
		t.Errorf("keys left: %+v, %v", kvs, err)
	}
	if again := must(t, s, store.DeleteRange("a/", "a0")); again != rev {
		t.Errorf("a delete of no key changed the revision from %d to %d", rev, again)
	}
	if _, err := s.Txn(patient(t), store.Txn{Then: []store.Op{store.DeleteRange("a", "b"),
		put("a1", "1")}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a put within the range: %v", err)
	}
}

func testLimits(t *testing.T, s Subject) {
	many := func(n int) (ops []store.Op) {
		for i := range n {
			ops = append(ops, put(fmt.Sprintf("k%d", i), "v"))
		}
		return ops
	}
	compares := make([]store.Compare, store.MaxTxnOps)
	for i := range compares {
		compares[i] = store.Absent(fmt.Sprintf("absent%d", i))
	}
	if _, err := s.Txn(patient(t), store.Txn{If: compares, Then: many(store.MaxTxnOps)}); err != nil {
		t.Errorf("%d operations under as many compares: %v", store.MaxTxnOps, err)
	}
	for name, c := range map[string]struct {
		txn  store.Txn
		want error
	}{
		"operations":   {store.Txn{Then: many(store.MaxTxnOps + 1)}, store.ErrTooLarge},
		"compares":     {store.Txn{If: append(compares, store.Absent("one more"))}, store.ErrTooLarge},
		"bytes":        {store.Txn{Then: []store.Op{put("big", strings.Repeat("x", store.MaxTxnBytes))}}, store.ErrTooLarge},
		"too far":      {store.Txn{Then: []store.Op{put("big", strings.Repeat("x", 4<<20))}}, store.ErrTooLarge},
		"put put":      {store.Txn{Then: []store.Op{put("a", "1"), put("a", "2")}}, store.ErrInvalid},
		"put delete":   {store.Txn{Then: []store.Op{put("a", "1"), store.Delete("a")}}, store.ErrInvalid},
		"no key":       {store.Txn{Then: []store.Op{put("", "1")}}, store.ErrInvalid},
		"absent lease": {store.Txn{Then: []store.Op{{Key: "a", Lease: 4711}}}, store.ErrLeaseNotFound},
	} {
		_, err := s.Txn(patient(t), c.txn)
		if !errors.Is(err, c.want) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
	if a := get(t, s, "a"); a.Key != "" {
		t.Errorf("a rejected transaction wrote %+v", a)
	}
}

func testCancelledContext(t *testing.T, s Subject) {
	ctx, cancel := cancelledContext(t)
	defer cancel()
	if _, err := s.Txn(ctx, store.Txn{Then: []store.Op{put("a", "1")}}); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("txn: %v", err)
	}
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Grant(ctx, time.Second); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("grant: %v", err)
	}
}

func testLeaseKeys(t *testing.T, s Subject) {
	lease, err := s.Grant(patient(t), 30*time.Second)
	if err != nil || lease.TTL < 30*time.Second {
		t.Fatalf("grant: %+v, %v", lease, err)
	}
	rev := must(t, s, store.Op{Key: "b", Lease: lease.ID}, store.Op{Key: "a", Lease: lease.ID}, put("c", "kept"))
	if a := get(t, s, "a"); a.Lease != lease.ID {
		t.Errorf("a is on lease %x, want %x", a.Lease, lease.ID)
	}
	if ttl, err := s.KeepAlive(patient(t), lease.ID); err != nil || ttl < lease.TTL {
		t.Errorf("keepalive: %v, %v", ttl, err)
	}
	if err := s.Revoke(patient(t), lease.ID); err != nil {
		t.Fatal(err)
	}
	w := s.Watch("", rev+1)
	defer w.Close()
	b, err := w.Next(patient(t))
	if err != nil || describe(b.Changes) != "-a -b" || b.Changes[0].Mod != b.Changes[1].Mod {
		t.Errorf("a revoked lease delivered %q at %d, %v", describe(b.Changes), b.Revision, err)
	}
}

func testLeaseExpires(t *testing.T, s Subject) {
	var lease store.Lease
	var put store.TxnResult
	for all := patient(t); !put.Succeeded; {
		var err error
		if lease, err = s.Grant(all, time.Second); err != nil {
			t.Fatal(err)
		}
		put, err = s.Txn(all, store.Txn{Then: []store.Op{{Key: "a", Lease: lease.ID}}})
		if err != nil && !errors.Is(err, store.ErrLeaseNotFound) { // the lease may have expired
			t.Fatal(err)
		}
	}
	w := s.Watch("a", put.Revision+1)
	defer w.Close()
	b, err := w.Next(patient(t))
	if err != nil || describe(b.Changes) != "-a" {
		t.Fatalf("expiry delivered %q, %v", describe(b.Changes), err)
	}
	if _, err := s.KeepAlive(patient(t), lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("keepalive of an expired lease: %v", err)
	}
}

// etcd answers the renewal of an expired lease with TTL 0 and no error. A leader that ignores
// the TTL would lead forever.
func testLeaseMissing(t *testing.T, s Subject) {
	if ttl, err := s.KeepAlive(patient(t), 4711); !errors.Is(err, store.ErrLeaseNotFound) || ttl != 0 {
		t.Errorf("keepalive: %v, %v", ttl, err)
	}
	if err := s.Revoke(patient(t), 4711); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("revoke: %v", err)
	}
}

func testPutTakesKeyOffLease(t *testing.T, s Subject) {
	lease, err := s.Grant(patient(t), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, store.Op{Key: "a", Lease: lease.ID})
	must(t, s, put("a", "stays"))
	if err := s.Revoke(patient(t), lease.ID); err != nil {
		t.Fatal(err)
	}
	if a := get(t, s, "a"); string(a.Value) != "stays" || a.Lease != 0 {
		t.Errorf("a = %+v", a)
	}
}
