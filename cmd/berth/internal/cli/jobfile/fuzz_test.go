package jobfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/quantity"
)

// FuzzParse checks that Parse reads any file or returns an error that contains the name
// of the file. Amounts must be within the bounds of quantities.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		f.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"", "---\n---\n", "#\n", "a: &a [*a]\n", "labels: &x {a: *x}\n", "<<: {job: a}\nstage: b\n",
		"<<: [{job: a}, {stage: b}]\ncount: 1\n",
		"job: a\nstage: b\nworkers: [{index: 3, number: 2}]\n",
		"reservations: [{job: a, stage: b, count: 2, uid: 1-1, updatedAt: x}]\n",
		"skus: []\n", "kind: sku\nname: s\nscale: {cooldown: 10m, holdUntil: 2026-01-02T03:04:05Z}\n", "kind: pool\nname: p\nlostAfter: 1m\n",
		"job: a\nstage: b\ntask: {payload: aGVsbG8=, stopGrace: 1.5s}\nqueueTimeout: 10m\n",
		"constraints: {resources: {cpu: 0x10, memory: 1_000, disk: 1e3, gpu: .inf}}\n", "? [a]\n: b\n", "!!binary x\n",
		"\xff\xfe", "job: !!int a\n",
		`{"job":"a","stage":"b","count":1,"constraints":{"resources":{"cpu":"2000"}},"uid":"1-1","updatedAt":"2026-01-02T03:04:05Z"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		documents, err := Parse("job.yaml", bytes.NewReader(text))
		if err != nil {
			if e := fault.Of(err); e.Kind != fault.Invalid || !strings.HasPrefix(e.Message, "job.yaml") {
				t.Fatalf("%v %s", e.Kind, e.Message)
			}
			return
		}
		for _, d := range documents {
			resources := d.Reservation.GetConstraints().GetResources()
			if d.SKU != nil {
				resources = d.SKU.Resources
			}
			for name, n := range resources {
				// Amounts in base units, in a document that Berth printed, have no bound.
				if n < 0 || name != quantity.CPU && n > quantity.Max {
					t.Fatalf("%s is %d", name, n)
				}
			}
		}
	})
}
