package cli

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/store"
)

// clearScreen moves the cursor home and clears the terminal.
const clearScreen = "\x1b[H\x1b[2J"

// watch polls until ctx ends, and writes each answer that differs from the last answer.
// The timeout applies to the first call. During a later call, watch prints a notice and
// waits if no gateway answers. It also waits while the registry is not ready.
func (a *app) watch(ctx context.Context, c *client.Client, output string, v view) error {
	screen := screen{app: a, view: v, output: output}
	callCtx, cancel := a.limited(ctx)
	defer cancel()
	for {
		m, err := v.fetch(callCtx, c)
		switch {
		case err == nil:
			err = screen.show(m)
		case fault.Is(err, fault.ReasonRegistryNotReady):
			screen.wait(err)
			err = nil
		case ctx.Err() != nil:
			return nil
		}
		if err != nil {
			return err
		}
		if store.Sleep(ctx, a.every) != nil {
			return nil
		}
		callCtx = ctx
	}
}

// screen is the output of a watch.
type screen struct {
	*app
	view   view
	output string
	// last is the last answer that show wrote, without the fields that show does not
	// compare.
	last []byte
	// noticed reports whether a notice was printed since the last answer.
	noticed bool
}

// show writes an answer that differs from the last answer. On a terminal it overwrites
// the table, even if only an age has changed. Otherwise it ignores ages and appends the
// answer.
func (s *screen) show(m proto.Message) error {
	s.noticed = false
	drawing := s.Terminal && s.output != "json" && s.output != "yaml"
	text, err := s.view.render(m, s.output, s.Now())
	if err != nil {
		return err
	}
	if len(text) == 0 {
		text = []byte(s.view.empty + "\n")
	}
	look := text
	if !drawing {
		if look, err = show.JSONLine(show.Lasting(m)); err != nil {
			return err
		}
	}
	if bytes.Equal(look, s.last) {
		return nil
	}
	switch {
	case drawing:
		text = append([]byte(clearScreen), text...)
	case s.last == nil:
	case s.output == "yaml":
		text = append([]byte("---\n"), text...)
	case s.output != "json":
		text = append([]byte("\n"), text...)
	}
	s.last = look
	_, err = s.Out.Write(text)
	return err
}

// wait prints why there is no answer, unless it has done so since the last answer.
func (s *screen) wait(err error) {
	if !s.noticed {
		fmt.Fprintf(s.Err, "berth: %s; waiting\n", sentence(err))
	}
	s.noticed = true
}
