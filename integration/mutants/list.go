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
		Hunter: Sim, Expects: []string{"ALL_OR_NONE", "FENCE", "want of room"},
	},
	{
		Name: "no-compare-at-dispatch", Breaks: "a task is made only of a reservation and a lease that are as they were decided on",
		Edits: []Edit{
			{File: "services/assigner/dispatch/create.go", Old: `{Ref: r.Ref(), Mod: r.mod},`, New: ``},
			{File: "services/assigner/dispatch/create.go", Old: `{Ref: l.chunks[0].Ref(), Create: l.create},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"PLACEMENT", "NO_REVIVAL"},
	},
	{
		Name: "lower-cycle", Breaks: "a cycle of the registry is not taken after a later one",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `case p.Number < newest:`, New: `case false:`},
		},
		Hunter: Sim, Expects: []string{"CYCLE"},
	},
	{
		Name: "cycle-number-used-up", Breaks: "the registry's cycles continue above a number that somebody else named",
		Edits: []Edit{
			{File: "services/registry/scheduler/outcome.go", Old: `done.Newest > s.cycles && done.Newest < highestCycle`, New: `false`},
		},
		Hunter: Sim, Expects: []string{"waits for", "come to rest"},
	},
	{
		Name: "stop-is-no-promise", Breaks: "a worker whose stop an agent confirmed is never started there",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch == seen.epoch && seen.ended {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"had confirmed its stop", "and was started on"},
	},
	{
		Name: "epochs-not-compared", Breaks: "an order of a lower epoch is refused: its worker's name belongs to another by now",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch < seen.epoch {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"for an order of epoch", "had confirmed its stop", "and was started on"},
	},
	{
		Name: "full-taken-as-certain", Breaks: "a full store is no proof that nothing was written: the write that fills it is answered so",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `res, err = c.look(actx, txn, err)`, New: `res, err = TxnResult{}, ErrFull`},
		},
		Hunter: Sim, Expects: []string{"was told that it changed nothing for want of room"},
	},
	{
		Name: "serves-before-caught-up", Breaks: "a leader serves only once its view has reached the revision of its win",
		Edits: []Edit{
			{File: "pkg/loop/driver.go", Old: `return d.revision >= win`, New: `return true`},
		},
		Hunter: Sim, Expects: []string{"without knowing what the leader before wrote last"},
	},
	{
		Name: "answered-before-durable", Breaks: "an answer or an order goes out once what it rests on is durable",
		Edits: []Edit{
			{File: "pkg/loop/driver.go", Old: `for done < len(events) && after[done] <= durable {`, New: `for done < len(events) {`},
		},
		Hunter: Sim, Expects: []string{"and was never stored", "was cancelled, and", "runs false, recorded true", "does not come to rest"},
	},
	{
		Name: "lost-taken-as-durable", Breaks: "a transaction of unknown outcome is not durable until the chain tells so",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `lost = lost || !errors.Is(err, ErrFull)`, New: `return TxnResult{Succeeded: true}, lost, nil`},
		},
		Hunter: Chaos, Expects: []string{"are not linearizable"},
	},
	{
		Name: "answered-unconfirmed", Breaks: "an answer that rests on no write is given once the term is confirmed",
		Edits: []Edit{
			{File: "pkg/loop/driver.go", Old: `if durable == 0 && answers(open) {`, New: `if false {`},
		},
		Hunter: Sim, Expects: []string{"was cancelled, and", "runs false, recorded true"},
	},
	{
		Name: "calls-not-remembered", Breaks: "a call that comes again is answered as the first time, and nothing is done",
		Edits: []Edit{
			{File: "services/registry/queue/repeat.go", Old: `if mark.ID == id {`, New: `if false {`},
		},
		Hunter: Sim, Expects: []string{"was cancelled, and", "that was acknowledged of"},
	},
	{
		Name: "cancel-answered-early", Breaks: "a cancel is answered once nothing of it will be started any more",
		Edits: []Edit{
			{File: "services/registry/queue/wait.go", Old: `len(wait.workers) > 0) && !wait.isOver() {`, New: `len(wait.workers) > 0) && false {`},
		},
		Hunter: Sim, Expects: []string{"is not stopping"},
	},
	{
		Name: "requeued-twice", Breaks: "a worker that could not be started is queued again once",
		Edits: []Edit{
			{
				File: "services/registry/queue/requeue.go", Old: `effect.Puts = append(effect.Puts, next)`,
				New: `twin := *next; twin.UID, twin.Place = c.newUID(), c.newPlace(); effect.Puts = append(effect.Puts, next, &twin)`,
			},
		},
		Hunter: Sim, Expects: []string{"ORIGIN"},
	},
	{
		Name: "no-compare-at-grant", Breaks: "a lease is granted to a reservation that is as it was decided on",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `{Ref: reservation, Mod: e.Mod},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"NO_REVIVAL", "ORDER"},
	},
	{
		Name: "no-compare-at-cancel", Breaks: "a queued reservation ends only while the assigner has no task of it",
		Edits: []Edit{
			{File: "services/registry/queue/record.go", Old: `effect.Expect = append(effect.Expect, noTask(v.uid))`, New: ``},
		},
		Hunter: Sim, Expects: []string{"RESERVATION_STATE", "ONE_ASSIGNMENT", "is not stopping"},
	},
	{
		Name: "head-passed-over", Breaks: "behind a reservation that does not fit nothing of its group is granted",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `stopped[entry.Group] = outcome.Result != model.Granted &&`, New: `stopped[entry.Group] = false &&`},
		},
		Hunter: Sim, Expects: []string{"ORDER"},
	},
	{
		Name: "freed-before-stopped", Breaks: "capacity is given back once the worker has ended, and not when it is told to",
		Edits: []Edit{
			{File: "services/executor-state/inventory/settle.go", Old: `if !worker.State.Terminal() {`, New: `if worker.State < model.WorkerEvict {`},
		},
		Hunter: Sim, Expects: []string{"RELEASE"},
	},
	{
		Name: "lost-too-soon", Breaks: "an executor is given up after it was away for as long as it may be",
		Edits: []Edit{
			{File: "services/executor-state/inventory/lost.go", Old: `return from.Add(c.lostAfter(h))`, New: `return from`},
		},
		Hunter: Sim, Expects: []string{"and may be away for"},
	},
	{
		Name: "absent-by-an-old-report", Breaks: "a report proves absence only of workers that were acknowledged before it",
		Edits: []Edit{
			{File: "pkg/model/reconcile.go", Old: `w.Incarnation == said.Incarnation && w.Sequence < said.Sequence`, New: `w.Incarnation == said.Incarnation`},
		},
		Hunter: Sim, Expects: []string{"is LOST for a report without it"},
	},
	{
		Name: "proof-unused", Breaks: "a leader whose process is dead is replaced by proof, and nobody waits for its TTL",
		Edits: []Edit{
			{File: "pkg/leader/election.go", Old: `if e.cfg.Prove != nil && h.Address != "" {`, New: `if false {`},
		},
		Hunter: Chaos, Expects: []string{"that was killed alone"},
	},
}
