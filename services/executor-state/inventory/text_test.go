package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
)

// This file formats actions as text for transcripts.

func effectText(e model.Effect) string {
	var b strings.Builder
	b.WriteString("effect")
	for _, record := range e.Puts {
		fmt.Fprintf(&b, "\n  put %s", recordText(record))
	}
	for _, ref := range e.Deletes {
		fmt.Fprintf(&b, "\n  delete %s", refText(ref))
	}
	for _, expect := range e.Expect {
		fmt.Fprintf(&b, "\n  expect %s", expectText(expect))
	}
	for _, event := range e.Events {
		fmt.Fprintf(&b, "\n  event %d %s count=%d named=%d", event.Kind, event.UID, event.Count, len(event.Workers))
		if event.Reason != "" {
			fmt.Fprintf(&b, " on %s: %s", event.Workers[0].Executor, strings.TrimSpace(string(event.Reason)+" "+event.Message))
		}
	}
	return b.String()
}

func recordText(record model.Record) string {
	switch r := record.(type) {
	case *model.Executor:
		text := fmt.Sprintf("executor %s ordinal=%d incarnation=%d %s", r.ID, r.Ordinal, r.Incarnation,
			r.Resources.Canonical())
		if r.Orphans {
			text += " orphans"
		}
		if r.Cell {
			text += "cell"
		}
		if r.NeedsCommand {
			text += " needs a command"
		}
		if len(r.Removals) > 0 {
			text += " removes " + strings.Join(r.Removals, ",")
		}
		if r.Lost {
			text += " lost"
		}
		if r.Returning {
			text += " returning"
		}
		if r.Silent {
			text += " silent"
		}
		if r.Draining {
			text += " draining"
		}
		if r.DrainGrace != nil {
			text += fmt.Sprintf(" grace=%v", *r.DrainGrace)
		}
		if len(r.Unreported) > 0 {
			text += fmt.Sprintf(" unreported=%v", r.Unreported)
		}
		if r.ReportedThrough != "" {
			text += " reported-through=" + r.ReportedThrough
		}
		return text
	case *model.Live:
		return fmt.Sprintf("live %s incarnation=%d etcdlease=%d", r.ID, r.Incarnation, r.EtcdLease)
	case *model.LeaseChunk:
		role := ""
		if r.Role != "" {
			role = " role=" + r.Role
		}
		if r.OnVolumes {
			role += " on volumes"
		}
		if r.Rating != nil {
			role += fmt.Sprintf(" rating=%d", *r.Rating)
		}
		return fmt.Sprintf("lease %s/%d of %d%s: %s", r.UID, r.Chunk, r.Chunks, role, placementsText(r.Workers))
	case *model.VolumeChunk:
		text := refText(r.Ref())
		for i := range r.Volumes {
			text += "\n    " + volumeText(&r.Volumes[i])
		}
		return text
	case *model.Offer:
		return offerText(r)
	case *model.SKU:
		return fmt.Sprintf("sku %s %s", r.Name, r.Resources.Canonical())
	case *model.Disable:
		return disableText(r)
	case *model.Forgotten:
		return fmt.Sprintf("forgotten ordinal=%d incarnation=%d", r.Ordinal, r.Incarnation)
	case *model.Pool:
		text := fmt.Sprintf("pool %s %v", r.Name, r.Attributes)
		if r.LostAfter != nil {
			text += fmt.Sprintf(" lostAfter=%v", *r.LostAfter)
		}
		return text
	}
	return refText(record.Ref())
}

func offerText(o *model.Offer) string {
	text := fmt.Sprintf("offer %s number=%d asked=%s within=%v", o.UID, o.Number, o.AskedAt.Format(time.TimeOnly),
		o.AnswerWithin)
	if !o.DecidedAt.IsZero() {
		text += " decided=" + o.DecidedAt.Format(time.TimeOnly)
	}
	if o.Repeat {
		text += " repeat"
	}
	for _, cell := range o.Cells {
		text += fmt.Sprintf("\n    #%d %v", cell.Ordinal, cell.State)
		if cell.Rating != 0 {
			text += fmt.Sprintf(" rating=%d", cell.Rating)
		}
		if cell.Reason != "" || cell.Message != "" {
			text += fmt.Sprintf(" %s %s", cell.Reason, cell.Message)
		}
	}
	return text
}

func disableText(d *model.Disable) string {
	text := "disable " + d.ID
	for name, set := range map[string]bool{" drain": d.Drain, " claim": d.Claim, " enable": d.Enable} {
		if set {
			text += name
		}
	}
	if len(d.IDs) > 0 {
		text += fmt.Sprintf(" ids=%v", d.IDs)
	}
	if len(d.Attributes) > 0 {
		text += fmt.Sprintf(" attributes=%v", d.Attributes)
	}
	if !d.ExpireAt.IsZero() {
		text += " expires=" + d.ExpireAt.Format(time.TimeOnly)
	}
	switch {
	case d.Enable:
		text += fmt.Sprintf(" undone=%d", d.Undone)
	case !d.EndedAt.IsZero():
		text += " ended=" + d.EndedAt.Format(time.TimeOnly)
	case d.ReportedAll:
		text += " reported"
	case d.ReportedThrough != "":
		text += " reported-through=" + d.ReportedThrough
	}
	return text
}

// placementsText combines neighbors on one executor, for example 0.1-3.1@#2.
func placementsText(list []model.Placement) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1].Ordinal == list[i].Ordinal {
			j++
		}
		placements := list[i].Worker.String()
		if j > i {
			placements += "-" + list[j].Worker.String()
		}
		parts = append(parts, fmt.Sprintf("%s@#%d", placements, list[i].Ordinal))
		i = j + 1
	}
	return strings.Join(parts, " ")
}

var kindNames = map[model.Kind]string{
	model.KindLeader: "leader", model.KindReservation: "reservation", model.KindExecutor: "executor",
	model.KindSKU: "sku", model.KindLive: "live", model.KindLeaseChunk: "lease", model.KindTaskHeader: "header",
	model.KindTaskChunk:   "task",
	model.KindVolumeChunk: "volumes", model.KindOffer: "offer",
	model.KindDisable: "disable", model.KindPool: "pool", model.KindForgotten: "forgotten",
}

func refText(ref model.Ref) string {
	text := kindNames[ref.Kind] + " " + ref.ID
	if ref.Kind == model.KindVolumeChunk {
		return fmt.Sprintf("%s%s/%s/%d", text, ref.Key.Job, ref.Key.Stage, ref.Chunk)
	}
	if ref.Kind == model.KindLeaseChunk || ref.Kind == model.KindTaskChunk {
		text += fmt.Sprintf("/%d", ref.Chunk)
	}
	return text
}

func volumeText(v *model.Volume) string {
	text := fmt.Sprintf("%d %s@#%d %v holds %s", v.Index, v.ID, v.Ordinal, v.State, cmp.Or(v.Holds().Canonical(), "nothing"))
	if v.Role != "" {
		text += " role=" + v.Role
	}
	if v.Used {
		text += " used"
	}
	if v.Delete {
		text += " delete"
	}
	if !v.UnwantedSince.IsZero() {
		text += " unwanted since " + v.UnwantedSince.Format(time.TimeOnly)
	}
	if v.KeepFor != nil {
		text += fmt.Sprintf(" keep for %v", *v.KeepFor)
	}
	if v.Sequence > 0 {
		text += fmt.Sprintf(" list %d.%d", v.Incarnation, v.Sequence)
	}
	return text
}

// incarnationOf returns the incarnation of the executor with an ordinal; 1 if there is none.
func (c *Core) incarnationOf(ordinal uint32) int64 {
	if _, _, incarnation, ok := c.Address(ordinal); ok {
		return incarnation
	}
	return 1
}

// inOrder returns all volumes in order of stage, index and ID.
func (c *Core) inOrder() []*volume {
	return slices.SortedFunc(maps.Values(c.volumes), func(a, b *volume) int {
		return cmp.Or(a.stage.Compare(b.stage), a.Volume.Compare(b.Volume))
	})
}

func expectText(e model.Expect) string {
	switch {
	case e.Absent:
		return refText(e.Ref) + " absent"
	case e.Create != 0:
		return fmt.Sprintf("%s create=%d", refText(e.Ref), e.Create)
	}
	return fmt.Sprintf("%s mod=%d", refText(e.Ref), e.Mod)
}

func replyText(r model.Reply) string {
	if r.Err != nil {
		return "refused: " + r.Err.Error()
	}
	switch value := r.Value.(type) {
	case ExecutorView:
		return "reply " + viewText(value)
	case Announced:
		if !value.Superseded {
			return "Announced{}"
		}
	case *model.Pool:
		return "reply " + recordText(value)
	case policy.Claimed:
		return fmt.Sprintf("claimed %v by %s since %s", value.Executors, value.RequestID, value.Since.Format(time.TimeOnly))
	}
	if sku, ok := r.Value.(model.SKU); ok {
		return fmt.Sprintf("SKU %s, %s %v", sku.Name, sku.Resources.Canonical(), sku.Attributes)
	}
	outcomes, ok := r.Value.([]model.Outcome)
	if !ok {
		text := fmt.Sprintf("%T%+v", r.Value, r.Value)
		return text[strings.Index(text, ".")+1:]
	}
	var lines []string
	for _, o := range outcomes {
		line := fmt.Sprintf("%s %v", o.UID, strings.ToUpper(o.Result.String()))
		if o.Lease != 0 {
			line += fmt.Sprintf(" lease=%d", o.Lease)
		}
		if o.Reason != "" {
			line += " " + string(o.Reason)
		}
		if o.Message != "" {
			line += ": " + o.Message
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func viewText(v ExecutorView) string {
	text := fmt.Sprintf("%s #%d %v incarnation=%d used=%s of %s workers=%d", v.ID, v.Ordinal, v.State, v.Incarnation,
		cmp.Or(v.Used.Canonical(), "nothing"), v.Resources.Canonical(), v.Workers)
	if len(v.Pools) > 0 {
		text += fmt.Sprintf(" pools=%v", v.Pools)
	}
	for _, d := range v.Disabled {
		text += " disabled by " + d.ID
	}
	if v.Draining {
		text += " draining"
	}
	if v.DrainGrace != nil {
		text += fmt.Sprintf(" grace=%v", *v.DrainGrace)
	}
	if !v.SkippedUntil.IsZero() {
		text += " skipped until " + v.SkippedUntil.Format(time.TimeOnly)
	}
	return text
}

// dump returns all records and everything that the core derives from them, to compare two
// cores or two times. It omits state that only says where the core continues its work.
func dump(c *Core) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	refs := slices.SortedFunc(maps.Keys(c.records), func(x, y model.Ref) int {
		return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
	for _, ref := range refs {
		h := c.records[ref]
		line("%v create=%d mod=%d since=%v gone=%d %+v", ref, h.create, h.mod, h.since, h.incarnation, h.record)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.leases)) {
		line("lease %s create=%d %+v", uid, c.leases[uid].create(), c.leases[uid].refs())
	}
	for _, uid := range slices.Sorted(maps.Keys(c.tasks)) {
		line("task %s %v %d", uid, c.tasks[uid].header != nil, len(c.tasks[uid].chunks))
	}
	line("reservations %v", slices.Sorted(maps.Keys(c.reservations)))
	for h := range c.byID.All() {
		k := h.Class()
		line("host %s %v absent=%s workers=%d used=%v class=%s %v pools=%q closed by %v shape of %q over=%v stranded=%v superseded=%v standing=%d use=%d disabled=%v requests=%v", h.ID, h.state, absentAt(h),
			h.allocation.Workers, h.allocation.Used, k.Host().SKU, match.AttributesOf(k.Host().Attributes), k.Host().Pools,
			k.ClosedBy(),
			h.Shape().SKU(), c.overcommitted[h.ID] != nil, c.stranded[h.ID] != nil, c.superseded[h.ID] != nil, h.Eligibility(),
			h.use, h.disabled, c.requests.Of(&h.Executor))
	}
	for h := range c.absent.All() {
		line("absent %s", h.ID)
	}
	for _, ordinal := range slices.Sorted(maps.Keys(c.allocations)) {
		h := c.allocations[ordinal]
		line("allocation %d %d %v %v %v tasked=%d running=%d volumes=%v", ordinal, h.Workers, h.Used, h.Leased,
			h.placements, h.tasked, h.running, slices.Sorted(maps.Keys(h.volumes)))
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.stages), model.Key.Compare) {
		s := c.stages[key]
		line("stage %v chunks %v demand %v wanting %v holders %v", key, slices.Sorted(maps.Keys(s.chunks)), s.demand,
			slices.Sorted(maps.Keys(s.wanting)), s.holders)
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.gangs), model.Key.Compare) {
		g := c.gangs[key]
		leases, workers := 0, gang{workers: map[uint32]int{}}
		for l := g.first; l != nil; l = l.next {
			leases++
			for _, chunk := range l.chunks {
				c.countGang(workers, chunkOf(chunk), 1)
			}
		}
		line("gang %v leases=%d workers=%v counted=%v", key, leases, workers.workers,
			g.workers == nil || maps.Equal(g.workers, workers.workers))
	}
	for _, v := range c.inOrder() {
		line("volume %v %s", v.stage, volumeText(v.Volume))
	}
	for v := range c.keeps.All() {
		line("keeps %s until %v", v.ID, v.keptUntil())
	}
	line("ordinal %d states %v", c.lastOrdinal, c.states)
	size := c.index.Size()
	line("classes=%d shapes=%d free=%v capacity=%v", size.Classes, size.Shapes, c.index.Free(), c.index.Capacity())
	living := map[string]int{}
	for class := range c.index.Classes(nil) {
		for _, pool := range class.Pools() {
			living[pool.Name] = pool.Living
		}
	}
	line("pools with living executors %v", living)
	line("usage %+v", c.usage.Usage(start, ""))
	line("skus %+v", c.usage.SKUs())
	line("requests %v", c.requests)
	for h := range c.expired.All() {
		line("expired %s", h.ID)
	}
	line("pools %+v", c.pools.List())
	return b.String()
}

// isOpen reports whether the executor may get work.
func isOpen(h *host) bool { return h.Eligibility() == match.Eligible }

func absentAt(h *host) string {
	if h.AbsentSince.IsZero() {
		return ""
	}
	return h.AbsentSince.Format("15:04:05.000")
}
