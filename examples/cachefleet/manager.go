package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

const (
	job, sku              = "cache", "cache"      // of all workers, and of all nodes
	restoration, recovery = "restore", "recovery" // roles, for which nodes reserve slots

	lookEvery = 250 * time.Millisecond // interval between two lists of the object store
	debounce  = 2 * time.Second        // time without a change after which an object is complete
	keepFor   = 6 * time.Hour          // time from the end of the retention to the delete
	tooMany   = 200                    // number of snapshots from which a restore is refused
	taskLines = 1000                   // maximum number of lines of a recovery task
)

var objectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`) // also that of a stage

// manage requests the replicas of the snapshots, and publishes which of them are live.
func manage(ctx context.Context) {
	lock := must(os.OpenFile(in("lock"), os.O_CREATE|os.O_RDWR, 0o600))
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		log.Fatalf("another manager uses %s", *dir)
	}
	c, m := dial(), openMetadata()
	go m.follow(ctx, c)
	requested := map[string]time.Time{}
	for tick := time.Tick(lookEvery); ; <-tick {
		if err := reconcile(ctx, c, m, requested); err != nil {
			log.Print(err)
		}
	}
}

// reconcile compares the object store with the metadata, and makes the requests that are missing:
// the newest snapshots first. requested has the creation time of the snapshots that this process
// has requested. It only saves calls, because a repeat changes nothing.
func reconcile(ctx context.Context, c *client.Client, m *metadata, requested map[string]time.Time) error {
	objects, now := map[string]bool{}, time.Now()
	m.update(func() {
		for _, entry := range must(os.ReadDir(in("objects"))) {
			if info, err := entry.Info(); err == nil && objectName.MatchString(entry.Name()) {
				objects[entry.Name()] = true
				if now.Sub(info.ModTime()) >= debounce {
					m.Snapshots[entry.Name()] = info.ModTime().UTC()
				}
			}
		}
	})
	for name, created := range m.Snapshots {
		if !objects[name] {
			if err := cancel(ctx, c, name); err != nil {
				return err
			}
			log.Printf("cancelled %s: its object is missing", name)
			delete(requested, name)
			m.update(func() { delete(m.Snapshots, name) })
		} else if now.Sub(created) >= *retain+keepFor {
			// First the object, then the metadata: in the other order, a manager that is killed in
			// between leaves an object that looks like a new snapshot.
			log.Printf("deleting %s", name)
			check(os.Remove(in("objects", name)))
		}
	}
	newest := func(a, b string) int { return m.Snapshots[b].Compare(m.Snapshots[a]) }
	for _, name := range slices.SortedFunc(maps.Keys(m.Snapshots), newest) {
		created := m.Snapshots[name]
		if now.Sub(created) >= *retain || requested[name].Equal(created) {
			continue
		}
		for i := range *replicas {
			r := reservation(name, strconv.Itoa(i), created)
			r.ExpireAt = timestamppb.New(created.Add(*retain))
			if _, err := c.Reserve(ctx, r); err != nil {
				return err
			}
		}
		requested[name] = created
	}
	return nil
}

// cancel cancels the replicas and the restoration of a snapshot.
func cancel(ctx context.Context, c *client.Client, name string) error {
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: job, PageSize: 1000}) {
		role := filepath.Ext(r.GetStage())
		if err == nil && r.GetStage() == name+role && role != "."+recovery {
			_, err = c.Cancel(ctx, client.KeyOf(r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reservation returns a request for one worker, so that each worker moves, fails and ends alone.
// It depends only on the snapshot and the role, so that a repeat changes nothing.
func reservation(name, role string, created time.Time) *berthv1.Reservation {
	return &berthv1.Reservation{
		Job: job, Stage: name + "." + role, Count: 1, Constraints: &berthv1.Constraints{Sku: sku},
		Priority: &berthv1.Priority{Order: proto.Int64(-created.Unix())}, // the newest first
		Restart:  proto.String("ON_FAILURE"), MaxRestarts: proto.Int32(int32(*restarts)),
		OnWorkerLoss: proto.String("REPLACE"),
		Task: &berthv1.Task{Command: in("cachefleet"), Args: []string{"load", in("objects", name)},
			Readiness: berthv1.Readiness_REPORTED.Enum(), StartTimeout: durationpb.New(*timeout)},
	}
}

// restore requests snapshots for a limited time, in the slots that nodes reserve for it.
func restore(ctx context.Context, from, to string) {
	snapshots := openMetadata().Snapshots
	maps.DeleteFunc(snapshots, func(name string, _ time.Time) bool { return name < from || name > to })
	if n := len(snapshots); n == 0 || n >= tooMany {
		log.Fatalf("%d snapshots from %q to %q: restore at least 1 and fewer than %d", n, from, to, tooMany)
	}
	c := dial()
	for _, name := range slices.Sorted(maps.Keys(snapshots)) {
		r := reservation(name, restoration, snapshots[name])
		r.Constraints.Role = restoration
		r.Lifetime = &berthv1.Lifetime{For: durationpb.New(*restored), From: "LIVE"}
		fmt.Println(r.Stage, must(c.Reserve(ctx, r)).GetChange())
	}
}

// recoverLines requests tasks that write lines of the log to snapshots, the oldest request first.
func recoverLines(ctx context.Context, from, to int) {
	for c, now := dial(), time.Now(); from < to; from += taskLines {
		last := min(from+taskLines, to)
		name := fmt.Sprintf("lines-%d-%d", from, last)
		r := reservation(name, recovery, now)
		r.Constraints.Role, r.Priority.Order = recovery, proto.Int64(now.Unix())
		r.Task = &berthv1.Task{Command: r.Task.Command,
			Args: []string{"-dir", *dir, "index", strconv.Itoa(from), strconv.Itoa(last), name}}
		fmt.Println(r.Stage, must(c.Reserve(ctx, r)).GetChange())
	}
}
