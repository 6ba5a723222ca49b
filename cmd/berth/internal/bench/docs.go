package bench

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
)

// docsCommand is `berth bench docs`.
func docsCommand() *cobra.Command {
	var markdown, plots string
	cmd := &cobra.Command{
		Use:   "docs REPORT",
		Short: "Write what a report says into documents: tables and plots",
		Long: `Write what a report of berth bench (--json) says into documents.

The tables replace what stands between the lines
  ` + beginMark + `
  ` + endMark + `
of a file; without --markdown they are printed. With --plots, drawings are
written to a directory as SVG.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := readReport(args[0])
			if err != nil {
				return err
			}
			if plots != "" {
				if err := r.plot(plots); err != nil {
					return err
				}
			}
			if markdown == "" {
				_, err := cmd.OutOrStdout().Write(r.markdown())
				return err
			}
			return insert(markdown, r.markdown())
		},
	}
	cmd.Flags().StringVar(&markdown, "markdown", "", "file to insert the tables into, between its marks")
	cmd.Flags().StringVar(&plots, "plots", "", "directory to draw plots into")
	return cmd
}

// readReport reads what --json has written.
func readReport(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	r := &Report{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "%s is no report of berth bench", file).Because(err)
	}
	return r, nil
}
