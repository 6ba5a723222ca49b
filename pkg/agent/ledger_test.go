package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/testkit/transcript"
)

// TestLedger runs the transcripts. Each block of a transcript has commands, `----` and the
// output of the commands, and ends with an empty line.
func TestLedger(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string {
		s := stage{ledger: newLedger("host", "", 24*time.Hour), now: time.Unix(0, 0).UTC()}
		var got []string
		for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			head, _, found := strings.Cut(block+"\n", "----\n")
			got = append(got, strings.TrimSuffix(head, "\n"))
			if found {
				got[len(got)-1] = head + "----\n" + strings.TrimSuffix(s.play(t, head), "\n")
			}
		}
		return strings.Join(got, "\n\n") + "\n"
	})
}

// stage has the ledger and the current time of a transcript.
type stage struct {
	ledger *ledger
	now    time.Time
}

func (s *stage) play(t *testing.T, head string) string {
	var out strings.Builder
	for l := range strings.Lines(head) {
		fields := strings.Fields(l)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		arg := map[string]string{}
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			arg[name] = value
		}
		s.command(t, &out, fields[0], arg)
	}
	return out.String()
}

func (s *stage) command(t *testing.T, out *strings.Builder, name string, arg map[string]string) {
	l := s.ledger
	switch name {
	case "begin":
		l.begin(number(t, arg["incarnation"]), number(t, arg["term"]))
	case "raise":
		l.raise(number(t, arg["term"]))
	case "submit":
		e, fresh, older, err := l.submit(number(t, arg["term"]), number(t, arg["incarnation"]), workerArg(t, arg["worker"]),
			"1-1", s.now)
		if volume := arg["volume"]; fresh && volume != "" {
			_, create := arg["create"]
			if err = l.occupy(e.identity, volume, create); err != nil {
				l.startFailed(e.identity)
			}
		}
		switch {
		case err != nil:
			fmt.Fprintf(out, "refused %s", fault.Of(err).Reason)
			if older != nil {
				fmt.Fprintf(out, ", stop epoch %d", older.Epoch)
			}
			fmt.Fprintln(out)
		case fresh:
			fmt.Fprintln(out, "start it")
		default:
			fmt.Fprintln(out, "is", e.state)
		}
	case "stop":
		id := workerArg(t, arg["worker"])
		e, err := l.stop(number(t, arg["term"]), number(t, arg["incarnation"]), id)
		switch {
		case err != nil:
			fmt.Fprintln(out, "refused", fault.Of(err).Reason)
		case e == nil && l.isOver(id):
			fmt.Fprintln(out, "is over")
		case e == nil:
			l.bury(tombstone{identity: id, At: s.now})
			fmt.Fprintln(out, "buried")
		default:
			fmt.Fprintln(out, "is", e.state)
		}
	case "running":
		l.started(workerArg(t, arg["worker"]), model.ReadyStarted, false, s.now)
	case "evicting":
		fmt.Fprintln(out, l.evicting(workerArg(t, arg["worker"]), s.now))
	case "start-failed":
		l.startFailed(workerArg(t, arg["worker"]))
	case "ended":
		_, stopped := arg["stopped"]
		fmt.Fprintln(out, l.ended(workerArg(t, arg["worker"]), exitOf(int32(number(t, arg["code"])), stopped), s.now))
	case "adopt":
		l.adopt(workerArg(t, arg["worker"]), "1-1", model.WorkerRunning, s.now)
	case "report":
		scopes := map[string]scope{"changes": changes, "unconfirmed": unconfirmed, "complete": complete}
		show(out, l.report(scopes[arg["scope"]]))
	case "answered":
		answer := &controlv1.ExecutorReportAnswer{Sequence: number(t, arg["sequence"])}
		if arg["ended"] != "" {
			id := workerArg(t, arg["ended"])
			answer.Ended = append(answer.Ended, (&entry{identity: id}).wire())
		}
		for _, id := range l.answered(answer) {
			fmt.Fprintf(out, "forgets %s@%d\n", id.Worker, id.Epoch)
		}
	case "ack":
		fmt.Fprintln(out, "sequence", l.next())
	case "later":
		d, err := time.ParseDuration(arg["by"])
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "bury":
		for i := range number(t, arg["count"]) {
			worker := model.Worker{Job: arg["job"], Stage: "s", ID: model.WorkerID{Index: int32(i), Number: 1}}
			l.bury(tombstone{identity: identity{worker, 1}, At: s.now})
		}
	case "exists", "missing":
		l.observe(arg["volume"], name == "exists")
	case "drop":
		fresh, err := l.drop(number(t, arg["term"]), number(t, arg["incarnation"]), strings.Split(arg["volumes"], ","))
		if err != nil {
			fmt.Fprintln(out, "refused", fault.Of(err).Reason)
		} else {
			fmt.Fprintln(out, "destroy", fresh)
		}
	case "destroy":
		for id := range strings.SplitSeq(arg["volumes"], ",") {
			l.destroy(id, s.now)
		}
	case "removed":
		l.removed(arg["volume"])
	case "bury-volumes":
		for i := range number(t, arg["count"]) {
			l.bury(tombstone{Volume: fmt.Sprint(arg["prefix"], i), At: s.now})
		}
	case "resume":
		fmt.Fprintln(out, "remove", l.resume())
	case "list-due":
		l.volumesDue = true
	case "list":
		if list := l.listVolumes(); list == nil {
			fmt.Fprintln(out, "no list")
		} else {
			fmt.Fprintf(out, "list %d: %v, gone %v\n", list.Sequence, list.Ids, list.Gone)
		}
	case "received":
		l.listReceived(number(t, arg["sequence"]))
	case "volumes":
		fmt.Fprintf(out, "%d tombstones, %d volumes\n", len(l.tombstones), len(l.volumes))
	case "size":
		fmt.Fprintf(out, "%d tombstones, %d floors, %d entries\n", len(l.tombstones), len(l.floors), len(l.entries))
	default:
		t.Fatalf("unknown command %q", name)
	}
}

func show(out *strings.Builder, r *controlv1.ExecutorReport) {
	if r == nil {
		fmt.Fprintln(out, "nothing")
		return
	}
	fmt.Fprintf(out, "sequence %d of incarnation %d", r.Sequence, r.Incarnation)
	if r.Complete {
		fmt.Fprint(out, ", complete")
	}
	fmt.Fprintln(out)
	for _, w := range r.Workers {
		fmt.Fprintf(out, "  %s %s", reportKey(w), w.State)
		if w.ExitCode != nil {
			fmt.Fprintf(out, " %d", *w.ExitCode)
		}
		fmt.Fprintln(out)
	}
}

func number(t *testing.T, text string) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// workerArg parses job.index.number@epoch. The stage is always s.
func workerArg(t *testing.T, text string) identity {
	t.Helper()
	var id identity
	text = strings.NewReplacer(".", " ", "@", " ").Replace(text)
	if _, err := fmt.Sscan(text, &id.Job, &id.ID.Index, &id.ID.Number, &id.Epoch); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	id.Stage = "s"
	return id
}
