package client_test

import (
	"context"
	"fmt"
	"log"

	berthv1 "berth.dev/api/berth/v1"
)

// List the volumes of a job with their executors. The loop reads further pages as needed.
func ExampleClient_Volumes() {
	c, stop := startGateway()
	defer stop()

	for v, err := range c.Volumes(context.Background(), &berthv1.ListVolumesRequest{Job: "db"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.GetId(), "of index", v.GetIndex(), "is", v.GetState(), "on", v.GetExecutor())
	}
	// Output:
	// 6b1f0c2d9e47 of index 0 is READY on sim-0
	// a03c5d18f7b2 of index 1 is READY on sim-1
}

// Read one page of a list, and the token of the next page.
func ExampleClient_VolumesPage() {
	c, stop := startGateway()
	defer stop()

	page, err := c.VolumesPage(context.Background(), &berthv1.ListVolumesRequest{Job: "db", PageSize: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.GetVolumes()), "volume, more:", page.GetNextPageToken() != "")
	// Output:
	// 1 volume, more: true
}

// Delete the volumes of a job that has ended.
func ExampleClient_DeleteVolumes() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	request := &berthv1.DeleteVolumesRequest{} // of at most 1,000 volumes
	for v, err := range c.Volumes(ctx, &berthv1.ListVolumesRequest{Job: "db"}) {
		if err != nil {
			log.Fatal(err)
		}
		request.Ids = append(request.Ids, v.GetId())
	}
	count, err := c.DeleteVolumes(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("deleting", count)
	// Output:
	// deleting 2
}

// Give up the volume of an executor that has burned down. Its worker index starts elsewhere
// with an empty volume.
func ExampleClient_AbandonVolumes() {
	c, stop := startGateway()
	defer stop()

	count, err := c.AbandonVolumes(context.Background(), "6b1f0c2d9e47")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count, "abandoned")
	// Output:
	// 1 abandoned
}

// Compare what a job requests with what it has.
func ExampleClient_Plan() {
	c, stop := startGateway()
	defer stop()

	ctx := context.Background()
	request := &berthv1.Reservation{Job: "db", Stage: "data", Count: 2, Volume: &berthv1.VolumeRequest{Resource: "disk"}}
	if _, err := c.Reserve(ctx, request); err != nil {
		log.Fatal(err)
	}
	plan, err := c.Plan(ctx, "db")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range plan.Stages {
		for _, w := range s.Workers {
			fmt.Printf("%s/%d: satisfied %v, %s, volume %s\n", s.Stage, w.Index, w.Satisfied, w.Current, w.Volume)
		}
	}
	// Output:
	// data/0: satisfied true, RUNNING, volume 6b1f0c2d9e47
	// data/1: satisfied true, RUNNING, volume a03c5d18f7b2
}
