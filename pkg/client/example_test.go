package client_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/client"
)

// A job service reserves two workers, waits until they are handed out and
// follows what becomes of them.
func Example() {
	gateway, stop := startGateway()
	defer stop()

	c, err := client.Dial([]string{gateway})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	r, err := c.Reserve(ctx, &berthv1.Reservation{
		Job: "train", Stage: "gpu", Count: 2, TargetSize: 2,
		Constraints: &berthv1.Constraints{Resources: map[string]int64{"cpu": 2000}},
		Task:        &berthv1.Task{Command: "/opt/train"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.KeyOf(r), r.GetChange(), r.GetState())

	r, err = c.WaitFor(ctx, client.KeyOf(r), berthv1.Reservation_ACTIVE)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.KeyOf(r), r.GetState())

	for event, err := range c.Events(ctx, "train", "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.GetKind())
		if event.GetKind() == berthv1.Event_WORKER_RUNNING {
			break // a job service stores event.GetCursor() and goes on
		}
	}
	// Output:
	// train/gpu/main CREATED QUEUED
	// train/gpu/main ACTIVE
	// RESERVATION_QUEUED
	// WORKER_RUNNING
}

// startGateway starts a gateway that grants whatever it is asked for.
func startGateway() (address string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	g := &generous{}
	server := grpc.NewServer()
	berthv1.RegisterReservationsServer(server, g)
	berthv1.RegisterEventsServer(server, g)
	go server.Serve(listener)
	return listener.Addr().String(), server.Stop
}

type generous struct {
	berthv1.UnimplementedReservationsServer
	berthv1.UnimplementedEventsServer
}

func (*generous) UpsertReservation(_ context.Context, q *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
	r := proto.CloneOf(q.GetReservation())
	r.Name, r.State = "main", berthv1.Reservation_QUEUED
	r.Change = berthv1.UpsertReservationRequest_CREATED.Enum()
	return r, nil
}

func (*generous) GetReservation(_ context.Context, q *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
	return &berthv1.Reservation{Job: q.GetJob(), Stage: q.GetStage(), Name: q.GetName(), State: berthv1.Reservation_ACTIVE}, nil
}

func (*generous) WatchEvents(_ *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
	for i, kind := range []berthv1.Event_Kind{berthv1.Event_RESERVATION_QUEUED, berthv1.Event_WORKER_RUNNING} {
		if err := stream.Send(&berthv1.Event{Cursor: fmt.Sprintf("1.%d", i), Kind: kind}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}
