package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

const (
	// floodRate is the limit of requests per second of the tenant that floods, which sends
	// floodFactor times as many. floodQueued is its limit of queued reservations.
	floodRate, floodFactor, floodQueued = 200, 10, 1000
	// floodCallers is the number of callers that flood.
	floodCallers = 128
	// steadyInterval is the interval between two requests of the other tenant.
	steadyInterval = 50 * time.Millisecond
)

// The names of the tenants, which are also those of their jobs and of their certificates.
const (
	floodTenant  = ownPrefix + "flood"
	steadyTenant = ownPrefix + "steady"
)

var tenants = Workload{
	Name:  "tenants",
	Shows: "upsert to lease of a tenant while another one floods",
	Run: func(ctx context.Context, r *Run) error {
		for _, limited := range []bool{true, false} {
			if err := r.worldOfTenants(ctx, limited); err != nil {
				return err
			}
		}
		return nil
	},
}

// worldOfTenants measures in a world with TLS. The tenant that floods has limits or none.
func (r *Run) worldOfTenants(ctx context.Context, limited bool) error {
	dir, err := os.MkdirTemp(r.Dir, "berth-bench-access-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	text, suffix := "{}", ", no limits"
	if limited {
		text = fmt.Sprintf("tenants:\n- {name: %s, limits: {requestsPerSecond: %d, queuedReservations: %d}}\n", floodTenant,
			floodRate, floodQueued)
		suffix = ", limits"
	}
	file := filepath.Join(dir, "access.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	config := fleet.Config{TLS: transport.Require, Flags: map[string][]string{"": {"--access", file}}}
	return r.World(ctx, config, func(ctx context.Context, w *World) error {
		return w.floodedTenants(ctx, limited,
			suffix)
	})
}

// floodedTenants measures the lease of one tenant, first alone and then during the flood.
func (w *World) floodedTenants(ctx context.Context, limited bool, suffix string) error {
	if err := w.freeFleet(ctx, w.Sized(20, 2), "slots=100"); err != nil {
		return err
	}
	security, err := w.tenantTLS(steadyTenant)
	if err != nil {
		return err
	}
	steady, err := client.Dial(w.cluster.Gateways, client.WithTLS(security))
	if err != nil {
		return err
	}
	defer steady.Close()
	n := w.Sized(120, 4)
	leases := func(ctx context.Context, phase string) ([]float64, error) {
		return w.paced(ctx, phase, n, steadyInterval, func(ctx context.Context, _ int) (time.Time, error) {
			leased, _, err := w.startAs(ctx, steady, Batch{Job: steadyTenant, Stage: w.stage(), Workers: 1, SKU: w.SKU("free")})
			return leased, err
		})
	}
	const figure = "upsert to lease"
	alone, err := leases(ctx, figure+suffix+aloneSuffix)
	if err != nil {
		return err
	}
	flood, err := w.startFlood(ctx)
	if err != nil {
		return err
	}
	during, err := leases(ctx, figure+suffix+", flooded")
	drained := time.Now()
	if err == nil {
		_, err = w.Client.Drain(ctx, &berthv1.DrainExecutorRequest{Id: w.SKU("free") + "-0"})
	}
	drain := time.Since(drained)
	flood.stop()
	if err != nil {
		return err
	}
	status, err := w.Etcd.Client().Status(ctx, w.cluster.Etcd[0])
	if err != nil {
		return err
	}
	w.Add(Figure{Name: figure + suffix + aloneSuffix, Unit: "ms", Samples: alone})
	f := Figure{Name: figure + suffix + ", flooded", Unit: "ms", Samples: during, Against: figure + suffix + aloneSuffix}
	if limited {
		f.Target = &Target{Of: Ratio, AtMost: 2}
	}
	w.Add(f)
	w.Add(Figure{Name: "drain by an operator" + suffix, Unit: "ms", Samples: []float64{millis(drain)}})
	w.Add(Figure{Name: "flood, sent" + suffix, Unit: "/s", Samples: []float64{flood.rate(&flood.sent)}})
	w.Add(Figure{Name: "flood, accepted" + suffix, Unit: "/s", Samples: []float64{flood.rate(&flood.accepted)}})
	w.Add(Figure{Name: "etcd's database" + suffix, Unit: "MB", Samples: []float64{float64(status.DbSize) / 1e6}})
	w.Note("etcd's quota is %d MB", status.DbSizeQuota/1e6)
	return nil
}

// tenantTLS returns the configuration of calls of a tenant's job service.
func (w *World) tenantTLS(name string) (security *tls.Config, err error) {
	files, err := w.fleet.Issue(identity.Job, name)
	if err != nil {
		return nil, err
	}
	return transport.ClientConfig(files.Cert, files.Key, files.CA)
}

// flood is the load of the tenant that floods.
type flood struct {
	sent, accepted atomic.Int64
	began          time.Time
	seconds        float64
	stop           func()
}

func (f *flood) rate(n *atomic.Int64) float64 { return float64(n.Load()) / f.seconds }

// startFlood sends upserts of reservations that stay queued. It does not repeat calls that
// fail, unlike the client library. It sends less if the answers are late.
func (w *World) startFlood(ctx context.Context) (*flood, error) {
	security, err := w.tenantTLS(floodTenant)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+w.cluster.Gateways[0], grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(credentials.NewTLS(security)))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &flood{began: time.Now()}
	var sending sync.WaitGroup
	reservations := berthv1.NewReservationsClient(conn)
	const interval = time.Second * floodCallers / (floodRate * floodFactor)
	for caller := range floodCallers {
		sending.Go(func() {
			for due := f.began.Add(interval * time.Duration(caller) / floodCallers); ; due = due.Add(interval) {
				if now := time.Now(); due.Before(now.Add(-time.Second)) {
					due = now // a late caller does not catch up
				}
				if store.Sleep(ctx, time.Until(due)) != nil {
					return
				}
				b := queuedBatch(floodTenant, w.stage(), w.SKU("full"), 0)
				_, err := reservations.UpsertReservation(ctx, &berthv1.UpsertReservationRequest{Reservation: b.Request()})
				if ctx.Err() != nil {
					return
				}
				f.sent.Add(1)
				if err == nil {
					f.accepted.Add(1)
				}
			}
		})
	}
	f.stop = sync.OnceFunc(func() {
		f.seconds = time.Since(f.began).Seconds()
		cancel()
		sending.Wait()
		conn.Close()
	})
	return f, nil
}
