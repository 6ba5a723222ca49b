package internal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
)

// lister is a leader that receives lists of volumes with a term, or fails.
type lister struct {
	direct
	term     int64
	failures int
	lists    [][]string
}

func (l *lister) ReportVolumes(_ context.Context, req *controlv1.ReportVolumesRequest,
	_ ...grpc.CallOption) (*controlv1.ReportVolumesAnswer, error) {
	if l.failures--; l.failures >= 0 {
		return nil, errors.New("no leader")
	}
	l.lists = append(l.lists, slices.Concat(req.GetVolumes().GetIds(), req.GetVolumes().GetGone()))
	return &controlv1.ReportVolumesAnswer{Term: l.term}, nil
}

// list returns a heartbeat with a list of volumes.
func list(s *session, sequence int64, ids, gone []string) *controlv1.HeartbeatRequest {
	return &controlv1.HeartbeatRequest{Id: s.id, Incarnation: s.incarnation,
		Volumes: &controlv1.VolumeList{Sequence: sequence, Ids: ids, Gone: gone}}
}

// Each leader receives the newest list of an executor once, however often it fails, and the
// agent learns which list that is. An empty list is sent only if it says something.
func TestEachLeaderReceivesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := store.NewFake(store.FakeConfig{})
		l := start(t, db)
		agents := NewAgents(l, "default")
		leader := &lister{direct: direct{agents: agents}, term: 7, failures: 3}
		h := run(t, NewHeartbeats(l, db, &renewals{db: db}, nil, nil, leader, slog.New(slog.DiscardHandler)))
		s := beating(t, h, "a", register(t, agents, "a", "first").GetIncarnation())
		s.handle(list(s, 1, []string{"v1"}, nil))
		s.handle(list(s, 2, []string{"v1", "v2"}, []string{"v0"}))
		// received returns the sequences of the lists that the agent knows as received.
		received := func() (sequences []int64) {
			time.Sleep(time.Minute)
			synctest.Wait()
			for len(s.stream.(back).answers) > 0 {
				if a := <-s.stream.(back).answers; a.GetVolumesSequence() != 0 {
					sequences = append(sequences, a.GetVolumesSequence())
				}
			}
			return sequences
		}
		if got := received(); !slices.Equal(got, []int64{2}) || len(leader.lists) != 1 || len(leader.lists[0]) != 3 {
			t.Fatalf("received %v, lists %v", got, leader.lists)
		}
		s.handle(nil)
		s.handle(list(s, 1, []string{"v1"}, nil)) // late
		if got := received(); len(got) != 0 || len(leader.lists) != 1 {
			t.Errorf("repeated: %v, lists %v", got, leader.lists)
		}
		// A new leader has no lists.
		leader.term = 9
		if err := h.peek(t.Context(), func(c *inventory.Core) {
			s.volumes.observe(c, "a")
			s.volumes.leaderTerm = 9
			s.sendLists()
		}); err != nil {
			t.Fatal(err)
		}
		if got := received(); !slices.Equal(got, []int64{2}) || len(leader.lists) != 2 {
			t.Errorf("new leader: %v, lists %v", got, leader.lists)
		}
		s.handle(list(s, 3, nil, nil))
		if got := received(); len(got) != 0 || len(leader.lists) != 2 {
			t.Errorf("an empty list of an executor without volumes: %v, lists %v", got, leader.lists)
		}
		for _, bad := range []*controlv1.HeartbeatRequest{
			list(s, 0, nil, nil), list(s, 4, []string{"../x"}, nil), list(s, 4, nil, []string{""}),
		} {
			s.handle(bad)
			select {
			case <-s.stream.(back).ended:
			default:
				t.Errorf("accepted %v", bad.GetVolumes())
			}
		}
	})
}
