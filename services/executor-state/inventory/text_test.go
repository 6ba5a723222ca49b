package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
)

// Actions as text, for transcripts.

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
		text := fmt.Sprintf("executor %s ordinal=%d incarnation=%d %s", r.ID, r.Ordinal, r.Incarnation, r.Resources.Canonical())
		if r.Strays {
			text += " strays"
		}
		if r.Lost {
			text += " lost"
		}
		if r.Returning {
			text += " returning"
		}
		if r.Draining {
			text += " draining"
		}
		if len(r.Untold) > 0 {
			text += fmt.Sprintf(" untold=%v", r.Untold)
		}
		if r.Told != "" {
			text += " told=" + r.Told
		}
		return text
	case *model.Live:
		return fmt.Sprintf("live %s incarnation=%d etcdlease=%d", r.ID, r.Incarnation, r.EtcdLease)
	case *model.LeaseChunk:
		role := ""
		if r.Role != "" {
			role = " role=" + r.Role
		}
		return fmt.Sprintf("lease %s/%d of %d%s: %s", r.UID, r.Chunk, r.Chunks, role, placementsText(r.Workers))
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
	case d.ToldAll:
		text += " told"
	case d.Told != "":
		text += " told=" + d.Told
	}
	return text
}

// placementsText shortens neighbours on one executor: 0.1-3.1@#2.
func placementsText(list []model.Placement) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1].Ordinal == list[i].Ordinal {
			j++
		}
		seats := list[i].Worker.String()
		if j > i {
			seats += "-" + list[j].Worker.String()
		}
		parts = append(parts, fmt.Sprintf("%s@#%d", seats, list[i].Ordinal))
		i = j + 1
	}
	return strings.Join(parts, " ")
}

var kindNames = map[model.Kind]string{
	model.KindLeader: "leader", model.KindReservation: "reservation", model.KindExecutor: "executor",
	model.KindSKU: "sku", model.KindLive: "live", model.KindLeaseChunk: "lease", model.KindTaskHeader: "header", model.KindTaskChunk: "task",
	model.KindDisable: "disable", model.KindPool: "pool", model.KindForgotten: "forgotten",
}

func refText(ref model.Ref) string {
	text := kindNames[ref.Kind] + " " + ref.ID
	if ref.Kind == model.KindLeaseChunk || ref.Kind == model.KindTaskChunk {
		text += fmt.Sprintf("/%d", ref.Chunk)
	}
	return text
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
	case Claimed:
		return fmt.Sprintf("claimed %v by %s since %s", value.Executors, value.RequestID, value.Since.Format(time.TimeOnly))
	}
	if sku, ok := r.Value.(model.SKU); ok {
		return fmt.Sprintf("SKU %s, %s %v", sku.Name, sku.Resources.Canonical(), sku.Attributes)
	}
	outcomes, ok := r.Value.([]model.Outcome)
	if !ok {
		return fmt.Sprintf("reply %T%+v", r.Value, r.Value)[len("reply inventory."):]
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
	return text
}

// dump is all that the core knows and has derived, so that two cores, or one
// at two times, can be compared. Left out is what only says where to look next.
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
	for _, uid := range slices.Sorted(maps.Keys(c.awaited)) {
		line("awaited %s %+v of %s", uid, c.awaited[uid].size, c.awaited[uid].demand.text)
	}
	for _, text := range slices.Sorted(maps.Keys(c.demand)) {
		line("demand %s %d %d %v", text, c.demand[text].reservations, c.demand[text].workers, c.demand[text].batches)
	}
	for _, folded := range slices.Sorted(maps.Keys(c.skus)) {
		line("sku %s %v %v", folded, c.skus[folded].record, slices.Sorted(maps.Keys(c.skus[folded].shapes)))
		line("  spelled %v use=%v shut=%d most=%v", c.skus[folded].spellings, c.skus[folded].use, c.skus[folded].shut, c.skus[folded].shape())
		for _, name := range slices.Sorted(maps.Keys(c.skus[folded].free)) {
			if free := *c.skus[folded].free[name]; free != (sum{}) {
				line("  free %s %+v", name, free)
			}
		}
	}
	line("reservations %v", slices.Sorted(maps.Keys(c.reservations)))
	for h := range c.byID.All() {
		line("host %s %v gone=%v/%v bucket=%v workers=%d used=%v class=%s shape=%s over=%v stranded=%v superseded=%v standing=%d use=%d requests=%v", h.id, h.state, h.absent, absentAt(h),
			isOpen(h), h.hold.workers, h.hold.used, h.class.key, h.shape.key, c.over[h.id] != nil, c.stranded[h.id] != nil, c.superseded[h.id] != nil, h.standing, h.use, h.requests())
	}
	for h := range c.absent.All() {
		line("absent %s", h.id)
	}
	for _, ordinal := range slices.Sorted(maps.Keys(c.holds)) {
		h := c.holds[ordinal]
		line("hold %d %d %v %v %v tasked=%d running=%d", ordinal, h.workers, h.used, h.byRole, h.lies, h.tasked, h.running)
	}
	line("ordinal %d states %v", c.lastOrdinal, c.states)
	for _, key := range slices.Sorted(maps.Keys(c.classes)) {
		k := c.classes[key]
		var ids []string
		for at, h := range k.hosts {
			if h.at != at || h.class != k {
				panic("an executor is not where its class has it")
			}
			ids = append(ids, h.id)
		}
		slices.Sort(ids)
		line("class %s standing=%v hosts=%v pools=%q lostAfter=%v", key, k.standing, ids, k.host.Pools, k.lostAfter)
	}
	for _, key := range slices.Sorted(maps.Keys(c.shapes.byKey)) {
		line("shape %s size=%d standing=%v", key, c.shapes.byKey[key].size, c.shapes.byKey[key].standing)
	}
	for _, f := range slices.SortedFunc(slices.Values(c.forms), func(a, b *form) int { return cmp.Compare(a.key, b.key) }) {
		line("form %s shapes=%d", f.key, f.shapes)
		line(" open %s", dumpField(&f.open))
		line(" all %s", dumpField(&f.all))
	}
	for _, name := range slices.Sorted(maps.Keys(c.crews)) {
		line("crew %s classes=%d living=%d", name, c.crews[name].classes, c.crews[name].living)
	}
	b.WriteString(dumpSection(c, c.sections.whole))
	for _, name := range slices.Sorted(maps.Keys(c.total)) {
		if *c.total[name] != (sum{}) {
			line("total %s %+v", name, *c.total[name])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.disables.named)) {
		line("named %s %v", id, c.disables.named[id])
	}
	line("by kind %v", slices.Sorted(maps.Keys(c.disables.byKind)))
	for d := range c.disables.due.All() {
		line("due %s %v", d.ID, dueAt(d))
	}
	for d := range c.disables.untold.All() {
		line("untold %s", d.ID)
	}
	for h := range c.past.All() {
		line("past %s", h.id)
	}
	for h := range c.late.All() {
		line("late %s %v", h.id, h.executor.Untold)
	}
	for _, key := range slices.Sorted(maps.Keys(c.classes)) {
		if k := c.classes[key]; len(k.requests) > 0 || c.disables.closed.has(k.index) {
			line("class %s closed %v by %v", key, c.disables.closed.has(k.index), k.requests)
		}
	}
	line("%d classes are closed", c.disables.closed.classes)
	line("names %d, %d unknown", c.disables.names, c.disables.unknown)
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		line("pool %s %+v", name, c.pools[name].record)
	}
	return b.String()
}

// isOpen reports whether a search may find the executor.
func isOpen(h *host) bool {
	if len(h.class.requests) > 0 {
		return false
	}
	for _, b := range h.shape.form.open.blocks {
		if slices.Contains(b.hosts, h) {
			return true
		}
	}
	return false
}

// dumpField is the executors of a field with what they have there. How they are
// parted into blocks hangs on what was before, and is not to matter.
func dumpField(f *field) string {
	var all []string
	for i, b := range f.blocks {
		b.check()
		for at, h := range b.hosts {
			if f.find(spotOf(h, b.point(at))) != i {
				panic("an executor is not in the block that it belongs to")
			}
			if b.traits[at] != h.traits() {
				panic("an executor's traits are not those of its place")
			}
			all = append(all, fmt.Sprintf("%s %v", h.id, b.point(at)))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// check panics unless the block's bounds hold, and its executors are in order.
func (b *block) check() {
	if len(b.hosts) == 0 || len(b.hosts) != len(b.traits) || len(b.amounts) != len(b.hosts)*len(b.low) {
		panic("a block is not whole")
	}
	if !slices.IsSortedFunc(b.hosts, compareRank) {
		panic("a block is not in order of rank")
	}
	for at, k := range b.traits {
		if k.sku < b.lowSKU || k.sku > b.highSKU {
			panic("a SKU is out of bounds")
		}
		for i, amount := range b.point(at) {
			if amount < b.low[i] || amount > b.high[i] {
				panic("an amount is out of bounds")
			}
		}
	}
}

// dumpSection is all that is kept of a section.
func dumpSection(c *Core, s *section) string {
	var keys []string
	for k := range c.sections.all(s) {
		keys = append(keys, k.key)
	}
	slices.Sort(keys)
	return fmt.Sprintf("section %s classes=%d: %s\n", s.text(), s.classes, strings.Join(keys, " "))
}

// checkSections compares each section with one that is made anew.
func checkSections(t *rapid.T, c *Core) {
	for _, text := range slices.Sorted(maps.Keys(c.sections.byText)) {
		kept := c.sections.byText[text]
		if kept.text() != text || kept.dropped {
			t.Fatalf("a section is kept under %s", text)
		}
		got := dumpSection(c, kept)
		fresh := c.sections.make(kept.selector)
		want := dumpSection(c, fresh)
		// It is not listed by its text, which drop would take out.
		c.sections.drop(fresh)
		c.sections.byText[text] = kept
		if got != want {
			t.Fatalf("a section has drifted:\n%s\nmade anew:\n%s", got, want)
		}
	}
	for name, column := range c.sections.columns {
		for value := range column.values {
			if column.users == 0 {
				t.Fatalf("the column %s of %s is kept for nobody", name, value)
			}
		}
		for k := range c.sections.all(c.sections.whole) {
			of, value := column.ofClass(k.index), k.value(name)
			if of != column.values[value] && (value != "" || of != &column.none) {
				t.Fatalf("the column %s has a class of %q elsewhere", name, value)
			}
		}
	}
	crowd := 0
	for _, s := range c.shapes.byKey {
		crowd = max(crowd, s.standing[open])
	}
	if crowd != c.shapes.crowd {
		t.Fatalf("the most executors of a shape are %d, noted are %d", crowd, c.shapes.crowd)
	}
}

// value answers the class's value of an attribute, empty without one. Name is
// folded, and so is what it answers.
func (k *class) value(name string) string {
	at, found := slices.BinarySearchFunc(k.attributes, name, func(a attribute, name string) int { return cmp.Compare(a.name, name) })
	if !found {
		return ""
	}
	return k.attributes[at].value
}

func absentAt(h *host) string {
	if !h.absent {
		return ""
	}
	return h.goneAt.Format("15:04:05.000")
}
