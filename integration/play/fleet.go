package play

import (
	"fmt"
	"slices"
	"strconv"

	berthv1 "berth.dev/api/berth/v1"
)

// startExecutors starts the identical hosts exec-1 to exec-n.
func (p *player) startExecutors(w *words) (string, error) {
	n, err := strconv.Atoi(w.next("number of executors"))
	if err != nil {
		return "", err
	}
	e := w.executor()
	if err := w.problem(); err != nil {
		return "", err
	}
	list := make([]Executor, n)
	for i := range list {
		list[i] = e
		list[i].ID = fmt.Sprintf("exec-%d", len(p.hosts)+i+1)
	}
	return p.startAll(list)
}

func (p *player) startExecutor(w *words) (string, error) {
	id := w.next("id")
	e := w.executor()
	e.ID = id
	if err := w.problem(); err != nil {
		return "", err
	}
	return p.startAll([]Executor{e})
}

// executor reads the description of a host without its ID.
func (w *words) executor() Executor {
	silent := w.text("silent")
	e := Executor{SKU: w.text("sku"), Resources: w.resources(), Reserved: w.shares(), Attributes: w.attributes(),
		Generation: w.number("generation"), Allow: w.list("allow"), Starts: int(w.number("starts")),
		Silent: silent != "", Connects: silent == "connects"}
	if e.Resources["slots"] == 0 {
		e.Resources["slots"] = 1
	}
	return e
}

// startAll starts hosts and waits until each is READY.
func (p *player) startAll(list []Executor) (string, error) {
	for _, e := range list {
		if err := p.StartExecutor(e); err != nil {
			return "", err
		}
		p.hosts[e.ID] = e
	}
	for _, e := range list {
		if output := p.awaitState(e.ID, berthv1.Executor_READY); output != "ok" {
			return output, nil
		}
	}
	return "ok", nil
}

func (p *player) listExecutors(*words) (string, error) {
	answer, refused := call(p, p.executors.ListExecutors, &berthv1.ListExecutorsRequest{PageSize: 1000})
	if refused != nil {
		return refusal(refused), nil
	}
	return lines(answer.GetExecutors(), executorText), nil
}

func (p *player) awaitExecutor(id string, w *words) (string, error) {
	name := w.next("state")
	state, ok := berthv1.Executor_State_value[name]
	if !ok {
		return "", fmt.Errorf("%q is not an executor state", name)
	}
	return p.awaitState(id, berthv1.Executor_State(state), w.equations()...), nil
}

// awaitState waits until an executor has a state and the line about the executor contains
// the given words.
func (p *player) awaitState(id string, state berthv1.Executor_State, words ...string) string {
	var last string
	err := p.Until(func() bool {
		e, refused := call(p, p.executors.GetExecutor, &berthv1.GetExecutorRequest{Id: id})
		if refused != nil {
			last = refusal(refused)
			return false
		}
		last = executorText(e)
		return e.GetState() == state && hasAll(last, words)
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last)
	}
	return "ok"
}

// kill kills a leader or an agent.
func (p *player) kill(w *words) (string, error) {
	switch target := w.next("leader or agent"); target {
	case "leader":
		return "ok", p.KillLeader(w.next("service"))
	case "agent":
		agents := w.bare
		for w.bare = nil; len(agents) > 0; agents = agents[1:] {
			if err := p.KillAgent(agents[0]); err != nil {
				return "", err
			}
		}
		return "ok", nil
	default:
		return "", fmt.Errorf("kill: must be leader or agent, got %q", target)
	}
}

// freeze freezes an agent until it is thawed.
func (p *player) freeze(w *words) (string, error) {
	w.expect("agent")
	return "ok", p.FreezeAgent(w.next("id"))
}

// answer makes the agent of a silent host answer requests.
func (p *player) answer(w *words) (string, error) {
	w.expect("agent")
	return "ok", p.AnswerAgent(w.next("id"))
}

func (p *player) thaw(w *words) (string, error) {
	w.expect("agent")
	return "ok", p.ThawAgent(w.next("id"))
}

// restart restarts a killed process. `restart agent ID as ID` starts a host with a new ID
// and its old disk. Other words change the description of the host.
func (p *player) restart(w *words) (string, error) {
	if target := w.next("service or agent"); target != "agent" {
		return "ok", p.Restart(target)
	}
	id := w.next("id")
	if len(w.bare) == 0 && len(w.named) == 0 {
		return "ok", p.RestartAgent(id)
	}
	now := p.hosts[id]
	if len(w.bare) > 0 {
		w.expect("as")
		now.ID = w.next("new id")
	}
	if named := w.resources(); len(named) > 0 {
		now.Resources = named
	}
	if named := w.attributes(); len(named) > 0 {
		now.Attributes = named
	}
	if w.has("sku") {
		now.SKU = w.text("sku")
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	p.hosts[now.ID] = now
	return "ok", p.RestartAgentAs(id, now)
}

// copyAgent starts another agent with an executor's ID and waits for the finding that
// reports the rejection of that agent.
func (p *player) copyAgent(w *words) (string, error) {
	id := w.next("id")
	if err := w.problem(); err != nil {
		return "", err
	}
	if err := p.StartCopy(p.hosts[id]); err != nil {
		return "", err
	}
	err := p.Until(func() bool {
		answer, refused := call(p, p.findingsClient.ListFindings, &berthv1.ListFindingsRequest{})
		return refused == nil && slices.ContainsFunc(answer.GetFindings(), func(f *berthv1.Finding) bool {
			return f.GetKind() == "DUPLICATE_AGENT" && f.GetObject() == id
		})
	})
	if err != nil {
		return err.Error(), nil
	}
	return "ok", nil
}

// wipe deletes the disk of a host, except for its agent's secret.
func (p *player) wipe(w *words) (string, error) { return "ok", p.Wipe(w.next("id")) }

func (p *player) wait(w *words) (string, error) {
	d := w.duration(w.next("duration"))
	if err := w.problem(); err != nil {
		return "", err
	}
	return "ok", p.Wait(d)
}
