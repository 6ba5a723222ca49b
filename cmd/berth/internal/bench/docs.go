package bench

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
)

// docsCommand returns the command `berth bench docs`.
func docsCommand() *cobra.Command {
	var markdown, plots string
	cmd := &cobra.Command{
		Use:   "docs REPORT",
		Short: "Write the tables and plots of a report into documents",
		Long: `Write a report of berth bench (--json) into documents.

With --markdown, the command writes the tables to a file, in place of
everything between the lines
  ` + beginMark + `
  ` + endMark + `
Without --markdown, the command prints the tables. With --plots, it writes
plots to a directory as SVG.`,
		Example: "  berth bench docs report.json --plots plots",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			var r Report
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil {
				return fault.New(fault.Invalid, fault.ReasonInvalid, "%s is not a report of berth bench --json",
					args[0]).Because(err)
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
	cmd.Flags().StringVar(&markdown, "markdown", "", "file whose marked lines are replaced by the tables")
	cmd.Flags().StringVar(&plots, "plots", "", "directory to write plots to")
	return cmd
}
