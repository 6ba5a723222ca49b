package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// player plays one file on one cluster.
type player struct {
	Cluster
	reservations   berthv1.ReservationsClient
	executors      berthv1.ExecutorsClient
	assignments    berthv1.AssignmentsClient
	catalog        berthv1.CatalogClient
	demand         berthv1.UsageClient
	explanations   berthv1.ExplanationsClient
	findingsClient berthv1.FindingsClient
	volumesClient  berthv1.VolumesClient
	hosts          map[string]Executor // as last started
	requests       int
}

// command is a command of a file. It returns its output, or an error if its words are wrong.
type command func(*player, *words) (string, error)

var commands map[string]command

func init() {
	commands = map[string]command{
		"executors":      (*player).startExecutors,
		"executor":       (*player).startExecutor,
		"hosts":          (*player).listExecutors,
		"upsert":         (*player).upsert,
		"bind":           (*player).bind,
		"cancel":         (*player).cancel,
		"cancel-job":     (*player).cancelJob,
		"cancel-workers": (*player).cancelWorkers,
		"get":            (*player).get,
		"list":           (*player).list,
		"jobs":           (*player).jobs,
		"pending":        (*player).pending,
		"workers":        (*player).workers,
		"await":          (*player).await,
		"finish":         (*player).finish,
		"ready":          (*player).ready,
		"resend":         (*player).resend,
		"within":         (*player).within,
		"elapsed":        (*player).elapsed,
		"events":         (*player).events,
		"order":          (*player).order,
		"flush":          (*player).flush,
		"mark-ready":     (*player).markReady,
		"disable":        (*player).disable,
		"enable":         (*player).enable,
		"drain":          (*player).drain,
		"clear":          (*player).clearQuarantine,
		"remaining":      (*player).remaining,
		"claim":          (*player).claim,
		"pool":           (*player).pool,
		"sku":            (*player).sku,
		"usage":          (*player).usage,
		"unmapped":       (*player).unmapped,
		"idle":           (*player).idle,
		"explain":        (*player).explain,
		"findings":       (*player).findings,
		"kill":           (*player).kill,
		"freeze":         (*player).freeze,
		"thaw":           (*player).thaw,
		"answer":         (*player).answer,
		"restart":        (*player).restart,
		"copy":           (*player).copyAgent,
		"wipe":           (*player).wipe,
		"wait":           (*player).wait,
		"volumes":        (*player).volumes,
		"written":        (*player).written,
		"delete-volumes": (*player).deleteVolumes,
		"delete-unknown": (*player).deleteUnknown,
		"abandon":        (*player).abandon,
		"wipe-volumes":   (*player).wipeVolumes,
		"add-volume":     (*player).addVolume,
		"has-volume":     (*player).hasVolume,
	}
}

// Play runs a file on the cluster that start returns. It returns the file with the actual
// output. It returns an error if the file has a mistake or the cluster leaves processes
// or records behind.
func Play(start func(Options) (Cluster, error), text string) (after string, err error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	p := &player{hosts: map[string]Executor{}}
	defer func() {
		if p.Cluster != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	var out strings.Builder
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for i+1 < len(lines) && lines[i+1] != "" {
			i++ // skip the old output
		}
		name, words := parse(line)
		if p.Cluster == nil {
			if err := p.start(start, name, words); err != nil {
				return "", err
			}
			if name == "cluster" {
				continue
			}
		}
		command := commands[name]
		if command == nil {
			return "", fmt.Errorf("unknown command %q", name)
		}
		output, err := command(p, words)
		if err = errors.Join(err, words.problem()); err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
		out.WriteString("----\n" + strings.TrimRight(output, "\n") + "\n")
	}
	if p.Cluster == nil {
		return "", errors.New("the file has no command")
	}
	return out.String(), p.Rest()
}

// start starts the cluster that the first command describes.
func (p *player) start(start func(Options) (Cluster, error), name string, w *words) error {
	options := Options{Replicas: 1}
	if name == "cluster" {
		if w.has("replicas") {
			options.Replicas = int(w.number("replicas"))
		}
		options.Readiness, options.Legacy, options.Long = w.text("readiness"), w.text("legacy") == "yes",
			w.text("long") == "yes"
		options.Defaults = w.text("defaults")
		if err := w.problem(); err != nil {
			return err
		}
	}
	c, err := start(options)
	if err != nil {
		return err
	}
	p.Cluster = c
	p.reservations = berthv1.NewReservationsClient(c)
	p.executors = berthv1.NewExecutorsClient(c)
	p.assignments = berthv1.NewAssignmentsClient(c)
	p.catalog = berthv1.NewCatalogClient(c)
	p.demand = berthv1.NewUsageClient(c)
	p.explanations = berthv1.NewExplanationsClient(c)
	p.findingsClient = berthv1.NewFindingsClient(c)
	p.volumesClient = berthv1.NewVolumesClient(c)
	return nil
}

// call makes a call of the public API and repeats it while its outcome is unknown.
func call[Q, A any](p *player, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (answer A,
	refused *fault.Error) {
	_ = p.Until(func() bool { // the last error is the result
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var err error
		answer, err = method(ctx, request)
		refused = rpc.FromStatus(err)
		return refused == nil || refused.Kind != fault.Unavailable || refused.Reason == fault.ReasonRegistryNotReady
	})
	return answer, refused
}

// refusal formats an error as callers see it.
func refusal(f *fault.Error) string {
	fields := make([]string, len(f.Fields))
	for i, field := range f.Fields {
		fields[i] = " " + field.Name
	}
	slices.Sort(fields)
	return fmt.Sprintf("refused %s%s", f.Reason, strings.Join(fields, ""))
}

// requestID returns a new request ID.
func (p *player) requestID() string {
	p.requests++
	return fmt.Sprintf("request-%d", p.requests)
}
