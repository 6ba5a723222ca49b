// Command pages writes the man pages and the shell completions of a release.
//
//	pages DIR VERSION SECONDS
//
// The pages have the version and the date, in seconds since 1970.
//
//	DIR/completions    the completions of berth
//	DIR/man-linux      the pages of berth
//	DIR/man-darwin     the pages of the commands that berth has on macOS
//	DIR/man-agent      the page of the program berth-agent
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"berth.dev/cmd/berth-agent/command"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/root"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pages DIR VERSION SECONDS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(dir, version, seconds string) error {
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	date := time.Unix(unix, 0).UTC()
	// The default of an option must not depend on the machine that makes the release.
	streams := cli.Streams{Env: func(string) string { return "" }, Now: time.Now}
	agent := command.Agent()
	agent.Use = "berth-agent"
	for _, set := range []struct {
		name, section string
		root          *cobra.Command
	}{
		{"man-linux", "1", root.New(streams)},
		{"man-darwin", "1", root.Client(streams)},
		// Another section than the page of `berth agent`, which has the same name.
		{"man-agent", "8", agent},
	} {
		at := filepath.Join(dir, set.name)
		if err := os.MkdirAll(at, 0o750); err != nil {
			return err
		}
		set.root.DisableAutoGenTag = true
		header := &doc.GenManHeader{Section: set.section, Date: &date, Source: "Berth " + version, Manual: "Berth"}
		if err := doc.GenManTree(set.root, header, at); err != nil {
			return err
		}
	}
	at := filepath.Join(dir, "completions")
	if err := os.MkdirAll(at, 0o750); err != nil {
		return err
	}
	berth := root.New(streams)
	for name, write := range map[string]func(string) error{
		"berth.bash": func(file string) error { return berth.GenBashCompletionFileV2(file, true) },
		"_berth":     berth.GenZshCompletionFile,
		"berth.fish": func(file string) error { return berth.GenFishCompletionFile(file, true) },
	} {
		if err := write(filepath.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}
