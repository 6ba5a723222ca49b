package cli

import (
	"bytes"
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/client"
)

// clearScreen puts the cursor home and takes away what was drawn.
const clearScreen = "\x1b[H\x1b[2J"

// watch looks again and again and writes each answer that differs from the one
// before, until ctx ends. A terminal is drawn over, also when only an age has
// changed; elsewhere one text follows another, and ages do not count.
func (a *app) watch(ctx context.Context, c *client.Client, output string, v view, m proto.Message) error {
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	drawing := a.Terminal && (output == "table" || output == "wide")
	var before []byte
	for {
		text, err := v.render(m, output, a.Now())
		if err != nil {
			return err
		}
		if len(text) == 0 {
			text = []byte(v.empty(m) + "\n")
		}
		look := text
		if !drawing {
			if look, err = show.JSONLine(show.Lasting(m)); err != nil {
				return err
			}
		}
		if !bytes.Equal(look, before) {
			if err := a.draw(text, output, drawing, before == nil); err != nil {
				return err
			}
			before = look
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		// Without a bound: an outage is waited out, and told of.
		if m, err = v.fetch(ctx, c); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func (a *app) draw(text []byte, output string, drawing, first bool) error {
	switch {
	case drawing:
		text = append([]byte(clearScreen), text...)
	case first:
	case output == "yaml":
		text = append([]byte("---\n"), text...)
	case output != "json":
		text = append([]byte("\n"), text...)
	}
	_, err := a.Out.Write(text)
	return err
}
