package cli

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// paged is the answer of a list.
type paged interface {
	proto.Message
	GetNextPageToken() string
}

// whole reads all pages of a list and joins them into one answer, which carries
// the revision of the last.
func whole[Q proto.Message, A paged](ctx context.Context, request Q, page func(context.Context, Q) (A, error)) (proto.Message, error) {
	request = proto.CloneOf(request)
	all, err := page(ctx, request)
	if err != nil {
		return nil, err
	}
	for token := all.GetNextPageToken(); token != ""; {
		setPageToken(request, token)
		next, err := page(ctx, request)
		if err != nil {
			return nil, err
		}
		token = next.GetNextPageToken()
		proto.Merge(all, next) // appends the items
	}
	m := all.ProtoReflect()
	m.Clear(m.Descriptor().Fields().ByName("next_page_token"))
	return all, nil
}

func setPageToken(request proto.Message, token string) {
	m := request.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("page_token"), protoreflect.ValueOfString(token))
}
