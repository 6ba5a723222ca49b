package cell

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// labelOffer is the label of a reservation in the child that has its origin in JSON.
const labelOffer = "berth.dev/cell-offer"

// maxJob is the maximum length of the name of a job.
const maxJob = 128

// origin is the reservation of the parent for which the child keeps executors.
type origin struct {
	Job    string `json:"job"`
	Stage  string `json:"stage"`
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Epoch  int64  `json:"epoch"`
	Number int64  `json:"number"`
	// Runs has the workers as triples of first index, last index and number.
	Runs [][3]int32 `json:"workers"`

	// workers has the workers of Runs.
	workers model.WorkerSet
}

func originOf(o *controlv1.Offer) origin {
	key, workers := o.GetKey(), wire.WorkerSet(o.GetWorkers())
	of := origin{Job: key.GetJob(), Stage: key.GetStage(), Name: key.GetName(), UID: o.GetUid(), Epoch: o.GetEpoch(),
		Number: o.GetNumber(), workers: workers}
	for _, r := range workers {
		of.Runs = append(of.Runs, [3]int32{r.First, r.Last, r.Number})
	}
	return of
}

// label returns the origin as the text of a label.
func (o origin) label() string {
	// A struct of texts and numbers always marshals.
	text, _ := json.Marshal(o)
	return string(text)
}

// originIn returns the origin of a reservation of the child. Others may write labels in the
// child too, so it checks everything.
func originIn(cell string, r *berthv1.Reservation) (o origin, err error) {
	if err := json.Unmarshal([]byte(r.GetLabels()[labelOffer]), &o); err != nil {
		return origin{}, fmt.Errorf("label %s: %w", labelOffer, err)
	}
	var workers model.WorkerSet
	for _, r := range o.Runs {
		workers = append(workers, model.Run{First: r[0], Last: r[1], Number: r[2]})
	}
	if err := workers.Check(model.MaxWorkers); err != nil {
		return origin{}, fmt.Errorf("label %s: %w", labelOffer, err)
	}
	named := model.ValidName(o.Job, maxJob) && model.ValidName(o.Stage, maxJob) && model.ValidName(o.Name, maxJob)
	if o.workers = workers; !named || o.Epoch <= 0 || o.key(cell) != client.KeyOf(r) {
		return origin{}, fmt.Errorf("label %s: it is not that of the reservation", labelOffer)
	}
	return o, nil
}

// key returns the key of the reservation in the child.
func (o origin) key(cell string) client.Key {
	job := prefixOf(cell) + o.Job
	if len(job) > maxJob {
		sum := sha256.Sum256([]byte(o.Job))
		job = prefixOf(cell) + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	}
	return client.Key{Job: job, Stage: o.Stage, Name: o.UID}
}

// prefixOf returns the prefix of the names of a cell's jobs in the child.
func prefixOf(cell string) string { return cell + "." }

// pathOf returns the path of an offer with the own ID, or false if the cell is in it already or it
// would be too long.
func pathOf(cell string, o *controlv1.Offer, most int) (path string, ok bool) {
	cells := append(slices.Clone(o.GetPath()), cell)
	return strings.Join(cells, "/"), !slices.Contains(o.GetPath(), cell) && len(cells) <= most
}
