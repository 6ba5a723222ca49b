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

// The control sequences of an update in place. An update overwrites the lines of the last
// one instead of clearing the terminal first, so that the terminal does not flicker.
const (
	clearScreen = "\x1b[H\x1b[2J"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

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
	var style show.Style
	if drawing {
		style = s.style()
	}
	text, err := s.view.render(m, s.output, s.Now(), style)
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
		s.draw(&text, style, s.last == nil)
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

// style returns the style of a table on the terminal, whose size may have changed.
func (a *app) style() show.Style {
	width, _ := a.size()
	return show.Style{Width: width, Color: a.colored()}
}

// page returns the style of a table that is printed once. On a terminal, its lines are cut at the
// right.
func (a *app) page() show.Style {
	style := show.Style{Color: a.colored(), Cut: true}
	if a.Terminal {
		style.Width, _ = a.size()
	}
	return style
}

// size returns the columns and lines of the terminal, or 0 if they are unknown.
func (a *app) size() (width, height int) {
	if a.Size == nil {
		return 0, 0
	}
	return a.Size()
}

// colored reports whether states have colors.
func (a *app) colored() bool { return a.Terminal && !a.noColor && a.Env("NO_COLOR") == "" }

// draw turns a text into an update of the terminal in place.
func (a *app) draw(text *[]byte, style show.Style, first bool) {
	_, height := a.size()
	var b bytes.Buffer
	b.WriteString(home)
	if first {
		b.Reset()
		b.WriteString(clearScreen)
	}
	for _, line := range show.Screen(string(*text), style, height) {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearRest)
	*text = b.Bytes()
}

// wait prints why there is no answer, unless it has done so since the last answer.
func (s *screen) wait(err error) {
	if !s.noticed {
		fmt.Fprintf(s.Err, "berth: %s; waiting\n", sentence(err))
	}
	s.noticed = true
}
