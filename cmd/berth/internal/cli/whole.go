package cli

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/client"
)

// paged is one page of a list.
type paged interface {
	proto.Message
	GetNextPageToken() string
}

// whole returns a call that reads all pages of a list and merges them into one answer.
// The answer has the revision of the last page.
func whole[Q proto.Message, A paged](request Q, page func(*client.Client, context.Context, Q) (A,
	error)) func(*client.Client, context.Context) (A, error) {
	return func(c *client.Client, ctx context.Context) (A, error) {
		request := proto.CloneOf(request)
		all, err := page(c, ctx, request)
		for token := all.GetNextPageToken(); err == nil && token != ""; {
			m := request.ProtoReflect()
			m.Set(m.Descriptor().Fields().ByName("page_token"), protoreflect.ValueOfString(token))
			var next A
			next, err = page(c, ctx, request)
			token = next.GetNextPageToken()
			proto.Merge(all, next) // appends the items
		}
		if err == nil {
			m := all.ProtoReflect()
			m.Clear(m.Descriptor().Fields().ByName("next_page_token"))
		}
		return all, err
	}
}
