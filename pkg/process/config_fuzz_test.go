package process_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
)

// Every configuration file is either read, or refused with an error that blames the file.
func FuzzConfigurationFile(f *testing.F) {
	for _, text := range []string{
		"", "workers: 2\nttl: 2s\ncluster: of-file\ngateways: [a:1, b:2]\ninsecure: true\n", "workers: two\n", "ttl: 5\n",
		"ttl: {a: b}\n", "colour: red\n",
		"gateways: {a: 1}\n", "- a\n", "a", "workers: 99999999999999999999\n", "workers: 1.5\n", "&a [*a]\n",
		"a: &a {b: *a}\n", "<<: {workers: 2}\n",
		"workers: null\n", "? [a]\n: b\n", "\xff", "1: 2\n", "true: 1\n", "trace-ratio: .nan\n", "workers.a: 1\n",
		"WORKERS: 2\nworkers: 3\n",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "berth.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		defaults := config{Service: process.ServiceDefaults(7101, 7181), Workers: 1}
		cmd := process.Command("registry", "", defaults, func(context.Context, config) error { return nil })
		cmd.SetArgs([]string{"--config", file})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err != nil && fault.Of(err).Kind != fault.Invalid {
			t.Fatalf("%v: %v", fault.Of(err).Kind, err)
		}
	})
}
