package mutants

// noFence is the edit that lets a deposed leader write.
var noFence = Edit{
	File: "pkg/store/committer.go",
	Old:  `[]Compare{CreatedAt(c.cfg.LeaderKey, c.cfg.Term), chain}`,
	New:  `[]Compare{chain}`,
}

// All are the mutants.
var All = []Mutant{
	{
		Name: "no-fence", Breaks: "every write is fenced by the create revision of the leader's key",
		Edits: []Edit{noFence}, Hunter: Sim, Expects: []string{"FENCE"},
	},
	{
		Name: "evict-unconditional", Breaks: "only the leader that was proven dead is evicted, and what it still writes is fenced",
		Edits: []Edit{
			noFence,
			{File: "pkg/leader/evict.go", Old: `If:   []store.Compare{store.CreatedAt(e.cfg.Key, term)},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"FENCE"},
	},
	{
		Name: "no-chain", Breaks: "a transaction whose outcome is unknown is applied at most once, and never after a later one",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `CreatedAt(c.cfg.LeaderKey, c.cfg.Term), chain}`, New: `CreatedAt(c.cfg.LeaderKey, c.cfg.Term)}`},
			{File: "pkg/store/committer.go", Old: "\tchain := Absent(c.cfg.ChainKey)\n\tif c.chain != nil {\n\t\tchain = HasValue(c.cfg.ChainKey, c.chain)\n\t}\n", New: ""},
		},
		Hunter: Sim,
	},
	{
		Name: "no-compare-at-hand-over", Breaks: "a task is made only of a reservation and a lease that are as they were decided on",
		Edits: []Edit{
			{File: "services/assigner/handout/create.go", Old: `{Ref: r.Ref(), Mod: r.mod},`, New: ``},
			{File: "services/assigner/handout/create.go", Old: `{Ref: l.chunks[0].Ref(), Create: l.create},`, New: ``},
		},
		Hunter: Sim,
	},
	{
		Name: "stop-is-no-promise", Breaks: "a worker whose stop an agent confirmed is never started there",
		Edits: []Edit{
			{File: "integration/sim/agent.go", Old: "\tif a.stopped[k] {\n\t\treturn handout.Refused{Reason: fault.ReasonStopped}\n\t}\n", New: ""},
			{File: "integration/sim/agent.go", Old: `if w := a.workers[k]; w != nil {
		return handout.Accepted`, New: `if w := a.workers[k]; w != nil && !w.state.Terminal() {
		return handout.Accepted`},
		},
		Hunter: Sim,
	},
}
