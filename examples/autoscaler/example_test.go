package autoscaler_test

import (
	"context"
	"log"
	"time"

	"berth.dev/client"
	"berth.dev/examples/autoscaler"
)

// group is the instance group of your cloud.
var group autoscaler.Group

func Example() {
	berth, err := client.Dial([]string{"127.0.0.1:8080"})
	if err != nil {
		log.Fatal(err)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := autoscaler.Step(ctx, berth, "gpu-8", group); err != nil {
			log.Print(err)
		}
		cancel()
		time.Sleep(10 * time.Second)
	}
}
