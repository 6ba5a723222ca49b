package play

import (
	"fmt"
	"strconv"

	berthv1 "berth.dev/api/berth/v1"
)

// startExecutors starts exec-1 to exec-n, all alike.
func (p *player) startExecutors(w *words) (string, error) {
	n, err := strconv.Atoi(w.next("how many"))
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

// executor reads a host, its id aside.
func (w *words) executor() Executor {
	return Executor{SKU: w.text("sku"), Resources: w.resources(), Reserved: w.shares(), Attributes: w.attributes(), Generation: w.number("generation"), Allow: w.list("allow")}
}

// startAll starts hosts and waits until each is READY.
func (p *player) startAll(list []Executor) (string, error) {
	for _, e := range list {
		if e.Resources["slots"] == 0 {
			e.Resources["slots"] = 1
		}
		if err := p.StartExecutor(e); err != nil {
			return "", err
		}
		p.hosts = append(p.hosts, e.ID)
	}
	for _, e := range list {
		if came := p.awaitState(e.ID, berthv1.Executor_READY); came != "ok" {
			return came, nil
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
	state, ok := berthv1.Executor_State_value[w.next("state")]
	if err := w.problem(); err != nil || !ok {
		return "", fmt.Errorf("that is no state of an executor: %w", err)
	}
	return p.awaitState(id, berthv1.Executor_State(state)), nil
}

func (p *player) awaitState(id string, state berthv1.Executor_State) string {
	var last string
	err := p.Until(func() bool {
		e, refused := call(p, p.executors.GetExecutor, &berthv1.GetExecutorRequest{Id: id})
		if refused != nil {
			last = refusal(refused)
			return false
		}
		last = executorText(e)
		return e.GetState() == state
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, last)
	}
	return "ok"
}

// kill ends a leader, or an agent, at once.
func (p *player) kill(w *words) (string, error) {
	switch what := w.next("leader or agent"); what {
	case "leader":
		return "ok", p.KillLeader(w.next("service"))
	case "agent":
		return "ok", p.KillAgent(w.next("id"))
	default:
		return "", fmt.Errorf("%q cannot be killed", what)
	}
}

// restart starts again what was killed.
func (p *player) restart(w *words) (string, error) {
	if what := w.next("service or agent"); what != "agent" {
		return "ok", p.Restart(what)
	}
	return "ok", p.RestartAgent(w.next("id"))
}

// wipe takes away what a host had on its disk.
func (p *player) wipe(w *words) (string, error) { return "ok", p.Wipe(w.next("id")) }

func (p *player) wait(w *words) (string, error) {
	d := w.duration(w.next("how long"))
	if err := w.problem(); err != nil {
		return "", err
	}
	return "ok", p.Wait(d)
}
