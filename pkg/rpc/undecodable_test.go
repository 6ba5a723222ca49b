package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestARequestThatIsNoProtobufIsTheCallersMistake(t *testing.T) {
	var log bytes.Buffer
	e := edge{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, message := range []string{
		"grpc: error unmarshalling request: proto: cannot parse invalid wire-format data",
		"grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data",
	} {
		err := e.render(context.Background(), "/m", nil, status.Error(codes.Internal, message))
		if status.Code(err) != codes.InvalidArgument || log.Len() > 0 {
			t.Errorf("got %v, and the log says %q", err, log.String())
		}
	}
	if err := e.render(context.Background(), "/m", nil, status.Error(codes.Internal, "broken")); status.Code(err) != codes.Internal || log.Len() == 0 {
		t.Errorf("got %v, and the log says %q", err, log.String())
	}
}
