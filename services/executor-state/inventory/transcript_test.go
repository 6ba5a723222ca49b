package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/policy"
	"berth.dev/testkit/transcript"
)

// A transcript consists of blocks: a command, a line with ---- and the result. Empty lines
// separate blocks, and lines with # are comments.
func TestTranscripts(t *testing.T) { transcript.Run(t, playFile) }

func playFile(_ *testing.T, text string) string {
	p := &player{rig: newRig(DefaultConfig())}
	p.log = func(format string, args ...any) { p.out = append(p.out, fmt.Sprintf(format, args...)) }
	var played []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		head, _, _ := strings.Cut(block, "\n----")
		var commands []string
		for line := range strings.SplitSeq(head, "\n") {
			if !strings.HasPrefix(line, "#") && line != "" {
				commands = append(commands, line)
			}
		}
		if len(commands) == 0 {
			played = append(played, head)
			continue
		}
		p.out = nil
		p.play(commands)
		played = append(played, strings.TrimSpace(head+"\n----\n"+strings.Join(p.out, "\n")))
	}
	return strings.Join(played, "\n\n") + "\n"
}

// player runs the commands of a transcript on a rig.
type player struct {
	*rig
	out []string
	// If held is set, effects wait for an explicit commit or abandon.
	held  bool
	cycle int64
}

func (p *player) finish() {
	if !p.held {
		p.settle()
	}
}

// play runs a command. Some commands use the lines after the first.
func (p *player) play(lines []string) {
	words := strings.Fields(lines[0])
	name, args := words[0], arguments(words[1:])
	id := args[""]
	switch name {
	case "elect":
		p.write(leaderKey{model.ServiceRegistry})
		p.catchUp()
		p.elect()
	case "failover":
		p.failOver()
	case "leader":
		p.drop(model.LeaderRef(id))
		p.write(leaderKey{id})
		p.catchUp()
	case "register":
		p.ask(Register{
			ID: id, Address: cmp.Or(args["address"], id+":7200"), SKU: args["sku"], Nonce: cmp.Or(args["nonce"], "n1"),
			Attributes: args.prefixed("attr."), Resources: args.amounts(), Reserved: args.reserved(),
			Generation: args.number("generation"), Cell: args["cell"] != "", SecretHash: args["secret"],
			NeedsCommand: args["programs"] != "", AllowLists: args["lists"],
		})
		p.finish()
	case "answer":
		p.ask(AnswerOffers{Executor: id, Incarnation: p.incarnation(id, args), Nonce: cmp.Or(args["nonce"], "n1"),
			Answers: args.answers(p), Freed: args["freed"] != ""})
		p.finish()
	case "offers":
		for _, o := range p.core.OffersTo(id) {
			text := ""
			if o.Held {
				text = " held"
			}
			p.log("%s number=%d %s%s", o.UID, o.Number, o.State, text)
		}
	case "choose":
		next := *p.keys[refOf(id)].record.(*model.Reservation)
		next.Chosen = args["cell"]
		if args["keep"] == "" {
			next.BoundAt = p.now
		}
		p.apply(&next)
	case "announce":
		incarnation := args.number("incarnation")
		if view, ok := p.core.Executor(id); ok && incarnation == 0 {
			incarnation = view.Incarnation
		}
		p.ask(Announce{ID: id, Incarnation: incarnation, EtcdLease: cmp.Or(args.number("etcdlease"), 7),
			Workers: int(args.number("workers")), Orphans: args.number("orphans") > 0})
		p.finish()
	case "depart":
		p.ask(Depart{ID: id, Incarnation: args.number("incarnation"), EtcdLease: cmp.Or(args.number("etcdlease"), 7)})
		p.finish()
	case "silent":
		p.applyDeletion(model.Ref{Kind: model.KindLive, ID: id})
	case "queue":
		if args["volume"] == "" && args["hold"] == "" && args["cells"] == "" && args["first"] == "" &&
			args["notbefore"] == "" {
			p.queue(id, int(args.number("n")), args.constraints())
			if args["readiness"] == "REPORTED" {
				p.reportsReadiness(id, args["command"])
				p.catchUp()
			}
			break
		}
		first := int32(args.number("first"))
		var volume *model.VolumeRequest
		if args["volume"] != "" {
			volume = args.volume()
		}
		timeout, _ := time.ParseDuration(args["queuetimeout"])
		p.apply(&model.Reservation{
			Key: keyOf(id), UID: id, State: model.Queued, NotBefore: p.after(args["notbefore"]),
			Spec: model.Spec{Constraints: args.constraints(), Volume: volume, Hold: args["hold"] != "",
				QueueTimeout: timeout},
			Granted: args["granted"] != "",
			Workers: model.WorkerSet{{First: first, Last: first + int32(args.number("n")) - 1,
				Number: int32(cmp.Or(args.number("number"), 1))}},
		})
	case "volumes":
		for _, v := range p.core.inOrder() {
			p.log("%s %s", v.stage.Stage, volumeText(v.Volume))
		}
	case "list":
		incarnation := args.number("incarnation")
		if view, ok := p.core.Executor(id); ok && incarnation == 0 {
			incarnation = view.Incarnation
		}
		p.ask(ReportVolumes{Executor: id, Incarnation: incarnation, Sequence: args.number("sequence"),
			IDs: p.volumeIDs(args["has"]), Gone: p.volumeIDs(args["gone"])})
		p.finish()
	case "delete-volumes":
		p.ask(DeleteVolumes{IDs: p.volumeIDs(id), Executor: args["executor"], Job: args["job"]})
		p.finish()
	case "abandon-volumes":
		p.ask(AbandonVolumes{p.volumeIDs(id)})
		p.finish()
	case "acknowledge":
		p.acknowledge(id, args.list("workers")...)
		p.catchUp()
		p.finish()
	case "quarantine":
		p.follow(model.Ref{Kind: model.KindVolumeChunk, Key: stageOf(keyOf(id))})
		p.elect()
	case "behind-view":
		p.write(&model.Reservation{
			Key: keyOf(id), UID: id, State: model.Queued, Spec: model.Spec{Constraints: args.constraints()},
			Workers: model.WorkerSet{{First: 0, Last: int32(args.number("n")) - 1, Number: 1}},
		})
	case "catch-up":
		p.catchUp()
		p.finish()
	case "set":
		for state := model.Queued; state <= model.Replaced; state++ {
			if state.String() == args["state"] {
				p.state(id, state)
			}
		}
		p.catchUp()
		p.finish()
	case "forget":
		p.applyDeletion(refOf(id))
	case "forget-task":
		p.drop(model.Ref{Kind: model.KindTaskChunk, ID: id})
		p.applyDeletion(model.Ref{Kind: model.KindTaskHeader, ID: id})
	case "dispatch":
		p.dispatch(id)
	case "header-unseen":
		p.write(&model.TaskHeader{UID: id, Key: keyOf(id)})
	case "end":
		for state := model.WorkerAssigned; state <= model.WorkerEvicted; state++ {
			if state.String() == args["state"] {
				p.changeWorkers(id, args.list("workers"), func(w *model.TaskWorker) {
					w.State, w.Since, w.Reason = state, model.InstantOf(p.now), fault.Reason(args["reason"])
					w.Requeue, w.BadTask = args["requeue"] == "yes", args["bad"] == "task"
					w.Unconfirmed, w.NeverStarted = args["unconfirmed"] == "yes", args["never"] == "started"
					switch args["unanswered"] {
					case "now":
						w.UnansweredSince, w.LastError = model.InstantOf(p.now), model.Intern("no answer")
					case "no":
						w.UnansweredSince = 0
					}
					if args["exit"] != "" {
						code := int32(args.number("exit"))
						w.ExitCode = &code
					}
				})
			}
		}
		p.catchUp()
		p.finish()
	case "cycle":
		p.cycle++
		cycle := model.Cycle{Term: cmp.Or(args.number("term"), p.registryTerm()),
			Number: cmp.Or(args.number("cycle"), p.cycle), Cut: p.rev}
		for _, line := range lines[1:] {
			words := strings.Fields(line)
			entry := p.entry(words[0])
			more := arguments(words[1:])
			entry.Group = cmp.Or(more["group"], entry.Group)
			entry.Mod = cmp.Or(more.number("mod"), entry.Mod)
			if more["again"] != "" {
				entry = model.Candidate{UID: entry.UID, Mod: entry.Mod, Group: entry.Group, Unchanged: true}
			}
			entry.NextAt, entry.Splits = int32(more.number("next")), more["splits"] != ""
			cycle.Candidates = append(cycle.Candidates, entry)
		}
		p.ask(cycle)
		p.finish()
	case "wait":
		d, err := time.ParseDuration(id)
		if err != nil {
			panic(err)
		}
		p.pause(d)
	case "hold":
		p.held = true
	case "commit":
		p.held = false
		if n := args.number("n"); n > 0 {
			p.commit(int(n))
			return
		}
		p.settle()
	case "abandon":
		p.held = false
		p.abandon()
		p.settle()
	case "executors":
		list, more := p.core.Executors(Filter{SKU: args["sku"], Pool: args["pool"]}, args["after"],
			int(cmp.Or(args.number("limit"), 100)))
		for _, v := range list {
			p.log("%s", viewText(v))
		}
		if more {
			p.log("and more")
		}
	case "disable":
		d := policy.Disable{RequestID: args["request"], Reason: args["reason"], ExpireAt: p.after(args["expire"])}
		d.Selector = args.selector()
		p.ask(d)
		p.finish()
	case "enable":
		p.ask(policy.Enable{RequestID: args["request"], DisableRequestID: args["undo"], Selector: args.selector()})
		p.finish()
	case "drain":
		d := policy.Drain{ID: id, RequestID: args["request"], Reason: args["reason"], ExpireAt: p.after(args["expire"])}
		if grace, err := time.ParseDuration(args["grace"]); err == nil {
			d.Grace = &grace
		}
		p.ask(d)
		p.finish()
	case "claim":
		p.ask(policy.Claim{RequestID: args["request"], SKU: args["sku"], Max: int(args.number("max")),
			ExpireAt: p.after(args["expire"])})
		p.finish()
	case "put-pool":
		pool := model.Pool{Name: id, Attributes: args.prefixed("attr.")}
		if after, err := time.ParseDuration(args["lostafter"]); err == nil {
			pool.LostAfter = &after
		}
		p.ask(policy.PutPool{Pool: pool})
		p.finish()
	case "delete-pool":
		p.ask(policy.DeletePool{Name: id})
		p.finish()
	case "findings":
		for _, f := range p.core.Findings(p.now) {
			p.log("%s %s since %s: %s", f.Kind, f.Object, f.Since.Format(time.TimeOnly), f.Message)
			if f.Kind == FindingFailsStarts {
				p.log("  %s", f.Action)
			}
		}
	case "ready":
		p.apply(&model.Ready{Since: p.now, By: "auto"})
	case "sku":
		sku := model.SKU{Name: id, Resources: args.amounts(), Attributes: args.prefixed("attr.")}
		if len(args.prefixed("scale.")) > 0 {
			sku.Scale = &model.ScaleRule{MinIdle: int32(args.number("scale.minIdle")),
				MinSize: int32(args.number("scale.minSize"))}
			sku.Scale.MaxIdle, sku.Scale.MaxSize = args.bound("scale.maxIdle"), args.bound("scale.maxSize")
			sku.Scale.Cooldown, _ = time.ParseDuration(args["scale.cooldown"])
			sku.Scale.HoldUntil = p.after(args["scale.hold"])
		}
		p.ask(PutSKU{sku})
		p.finish()
	case "delete-sku":
		p.ask(DeleteSKU{id})
		p.finish()
	case "usage":
		p.usage(id)
	case "idle":
		for _, e := range p.core.IdleExecutors(id, int(cmp.Or(args.number("max"), 100))) {
			p.log("%s %s since %s: %s", e.ID, e.Reason, e.Since.Format(time.TimeOnly), e.Message)
		}
	case "explain":
		e := p.core.Explain(id, args.constraints(), int(args.number("n")))
		p.log("needed %d, fitting %d %s %s", e.Needed, e.Fitting, e.Reason, e.Message)
		for _, check := range e.Checks {
			p.log("  %s: want %s, have %s (%d)", check.Name, check.Want, check.Have, check.Executors)
		}
	default:
		panic("unknown command " + name)
	}
}

// incarnation returns the incarnation in the arguments, or that of the executor.
func (p *player) incarnation(id string, args words) int64 {
	if view, ok := p.core.Executor(id); ok && args.number("incarnation") == 0 {
		return view.Incarnation
	}
	return args.number("incarnation")
}

// answers parses an answer to the latest question about a reservation, or to that with a number;
// nil if there is none.
func (w words) answers(p *player) []OfferAnswer {
	uid := w["uid"]
	if uid == "" {
		return nil
	}
	number := w.number("number")
	if offer := p.core.offers.byUID[uid]; offer != nil && number == 0 {
		number = offer.Number
	}
	answer := OfferAnswer{UID: uid, Number: number, CellOffer: model.CellOffer{
		State: map[string]model.CellState{"ACCEPTED": model.CellAccepted, "REJECTED": model.CellRejected,
			"WITHDRAWN": model.CellWithdrawn}[w["state"]],
		Rating: int32(w.number("rating")), Reason: fault.Reason(w["reason"]), Message: w["message"]}}
	return []OfferAnswer{answer}
}

// after parses a duration and returns the time after it. If the text is not a duration, it
// returns the zero time.
func (p *player) after(text string) time.Time {
	d, err := time.ParseDuration(text)
	if err != nil {
		return time.Time{}
	}
	return p.now.Add(d)
}

// usage prints a row for each SKU.
func (p *player) usage(sku string) {
	usage, err := p.core.Usage(p.now, sku)
	if err != nil {
		p.log("refused: %v", err)
	}
	for _, u := range usage.SKUs {
		p.log("%s: %d = %d idle + %d leased + %d running + %d unavailable, %d disabled", cmp.Or(u.SKU, "(none)"),
			u.Total, u.Idle, u.Leased, u.Running, u.Unavailable, u.Disabled)
		p.log("  pending %d reservations, %d workers, %d executors %v; effectively idle %d, wanted %d",
			u.PendingReservations, u.PendingWorkers, u.PendingExecutors, u.PendingBatches, u.EffectiveIdle, u.WantedSize)
		p.log("  %s: %s", u.WantedReason, u.WantedMessage)
	}
	for _, u := range usage.Unmapped {
		p.log("unmapped: %d reservations, %d workers of %s: %s %s", u.Reservations, u.Workers,
			u.Constraints.Resources.Canonical(), u.Reason, u.Message)
	}
}

// words has the arguments of a command: those of the form name=value, and at most one
// without a name.
type words map[string]string

func arguments(list []string) words {
	w := words{}
	for _, word := range list {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			name, value = "", word
		}
		w[name] = value
	}
	return w
}

func (w words) number(name string) int64 {
	n, _ := strconv.ParseInt(w[name], 10, 64)
	return n
}

// list parses numbers such as 0-3,7.
func (w words) list(name string) (numbers []int32) {
	for part := range strings.SplitSeq(w[name], ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		for n := first; n <= last; n++ {
			numbers = append(numbers, int32(n))
		}
	}
	return numbers
}

func (w words) prefixed(prefix string) map[string]string {
	found := map[string]string{}
	for name, value := range w {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			found[rest] = value
		}
	}
	return found
}

func (w words) selector() policy.Selector {
	s := policy.Selector{Attributes: w.prefixed("attr.")}
	if ids := w["ids"]; ids != "" {
		s.IDs = strings.Split(ids, ",")
	}
	return s
}

func (w words) volume() *model.VolumeRequest {
	v := &model.VolumeRequest{Resource: w["volume"]}
	if w["onloss"] == "REPLACE" {
		v.OnLoss = model.OnVolumeLossReplace
	}
	if d, err := time.ParseDuration(w["keepfor"]); err == nil {
		v.KeepFor = &d
	}
	return v
}

// volumeIDs parses a list of volumes: "db/3" is the volume of index 3 of the stage db, and
// anything else is an ID.
func (p *player) volumeIDs(text string) (ids []string) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, index, ok := strings.Cut(part, "/")
		if !ok {
			ids = append(ids, part)
			continue
		}
		n, _ := strconv.Atoi(index)
		ids = append(ids, p.core.stages[stageOf(keyOf(name))].current(int32(n)).ID)
	}
	return ids
}

// acknowledge records that an executor has started workers.
func (p *player) acknowledge(uid string, indexes ...int32) {
	p.changeWorkers(uid, indexes, func(w *model.TaskWorker) {
		w.State, w.Since = model.WorkerStarting, model.InstantOf(p.now)
		w.Incarnation, w.Sequence = p.core.incarnationOf(w.Ordinal), 1
	})
}

func (w words) bound(name string) *int32 {
	if _, ok := w[name]; !ok {
		return nil
	}
	n := int32(w.number(name))
	return &n
}

// reserved parses shares of roles such as reserve.web.cpu=1000.
func (w words) reserved() map[string]resource.Vector {
	shares := map[string]resource.Vector{}
	for key, text := range w.prefixed("reserve.") {
		role, name, _ := strings.Cut(key, ".")
		if shares[role] == nil {
			shares[role] = resource.Vector{}
		}
		shares[role][name], _ = strconv.ParseInt(text, 10, 64)
	}
	return shares
}

func (w words) amounts() resource.Vector {
	v := resource.Vector{}
	for _, name := range []string{"cpu", "memory", "gpu", "disk", "slots"} {
		if _, ok := w[name]; ok {
			v[name] = w.number(name)
		}
	}
	return v
}

func (w words) constraints() constraint.Constraints {
	k := constraint.Constraints{
		Resources: w.amounts().WithSlots(), SKU: w["sku"], Attributes: w.prefixed("attr."),
		Role: w["role"], SameShape: w["sameshape"] != "", Pack: w["pack"] != "",
		Cells: w["cells"] != "",
	}
	if avoid := w["avoid"]; avoid != "" {
		k.Avoid = strings.Split(avoid, ",")
	}
	if failed := w["failed"]; failed != "" {
		k.AvoidFailed = strings.Split(failed, ",")
	}
	if refused := w["refused"]; refused != "" {
		k.RefusedBy = strings.Split(refused, ",")
		k.AvoidFailed = append(k.AvoidFailed, k.RefusedBy...)
	}
	if by, limit, ok := strings.Cut(w["spread"], ":"); ok {
		n, _ := strconv.Atoi(limit)
		k.Spread = constraint.Spread{By: by, Max: int32(n)}
	}
	if pool := w["pool"]; pool != "" {
		k.Pools = slices.Sorted(strings.SplitSeq(pool, ","))
	}
	return k
}
