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
		Hunter: Sim, Expects: []string{"ALL_OR_NONE", "FENCE"},
	},
	{
		Name: "no-compare-at-hand-over", Breaks: "a task is made only of a reservation and a lease that are as they were decided on",
		Edits: []Edit{
			{File: "services/assigner/handout/create.go", Old: `{Ref: r.Ref(), Mod: r.mod},`, New: ``},
			{File: "services/assigner/handout/create.go", Old: `{Ref: l.chunks[0].Ref(), Create: l.create},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"PLACEMENT", "NO_REVIVAL"},
	},
	{
		Name: "lower-pass", Breaks: "a pass of the registry is not taken after a later one",
		Edits: []Edit{
			{File: "services/executor-state/inventory/pass.go", Old: `p.Term == c.passTerm && p.Pass < c.pass {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"PASS"},
	},
	{
		Name: "stop-is-no-promise", Breaks: "a worker whose stop an agent confirmed is never started there",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch == seen.epoch && seen.ended {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"had confirmed its stop", "is started on"},
	},
	{
		Name: "epochs-not-compared", Breaks: "an order of a lower epoch is refused: its worker's name belongs to another by now",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch < seen.epoch {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"had confirmed its stop", "is started on"},
	},
	{
		Name: "serves-before-caught-up", Breaks: "a leader serves only once its view has reached the revision of its win",
		Edits: []Edit{
			{File: "pkg/loop/driver.go", Old: `return d.revision >= win`, New: `return true`},
		},
		Hunter: Sim, Expects: []string{"without knowing what the leader before wrote last"},
	},
}
