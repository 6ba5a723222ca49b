package rpc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
)

// A compressed message of a few kilobytes may use a thousand times as much memory when it
// is decompressed.
func TestCompressedRequestsAreRejected(t *testing.T) {
	var log bytes.Buffer
	var received atomic.Bool
	p := serve(t, "", rpc.ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}, &peer{
		get: func(context.Context) (*berthv1.Replica, error) { received.Store(true); return &berthv1.Replica{}, nil },
		beat: func(s grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
			_, err := s.Recv()
			if err == nil {
				received.Store(true)
			}
			return err
		},
	})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const unary, stream = controlv1.Replicas_GetReplica_FullMethodName, controlv1.Heartbeats_Heartbeat_FullMethodName
	compressed, codec := grpc.UseCompressor(grpcgzip.Name), grpc.ForceCodecV2(rpc.FrameCodec())
	bomb := &rpc.Frame{Bytes: make([]byte, 1<<20)}
	for _, method := range []string{unary, stream} {
		s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, codec,
			compressed)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SendMsg(bomb) // the server may have ended the stream
		err = s.RecvMsg(&rpc.Frame{})
		f := rpc.FromStatus(err)
		if status.Code(err) != codes.InvalidArgument || len(f.Fields) != 1 || f.Fields[0].Name != "grpc-encoding" ||
			received.Load() {
			t.Errorf("%s: server answered %v, message received: %v", method, err, received.Load())
		}
	}
	// This message has the flag of a compressed message, but the call declares no encoding.
	var message bytes.Buffer
	z := gzip.NewWriter(&message)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	body := append([]byte{1, 0, 0, 0, 0}, message.Bytes()...)
	binary.BigEndian.PutUint32(body[1:], uint32(message.Len()))
	for _, method := range []string{unary, stream} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+method, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: &protocols}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(res.Body)
		res.Body.Close()
		transport.CloseIdleConnections()
		code := res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status")
		if code != "13" || received.Load() { // gRPC itself sends this answer
			t.Errorf("%s: server answered %s, message received: %v", method, code, received.Load())
		}
	}
	if log.Len() > 0 {
		t.Errorf("unexpected log: %s", log.String())
	}
}

func TestCompressedAnswersAreRejected(t *testing.T) {
	p := serve(t, "", rpc.ServerOptions{}, &peer{get: func(ctx context.Context) (*berthv1.Replica, error) {
		if err := grpc.SetSendCompressor(ctx, grpcgzip.Name); err != nil {
			t.Error(err)
		}
		return &berthv1.Replica{Id: strings.Repeat("x", 1<<20)}, nil
	}})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "grpc-accept-encoding", grpcgzip.Name)
	answer, err := controlv1.NewReplicasClient(conn).GetReplica(ctx, &controlv1.GetReplicaRequest{})
	if err == nil || !strings.Contains(err.Error(), "messages must not be compressed") {
		t.Errorf("got %d bytes, error %v", len(answer.GetId()), err)
	}
}
