package internal

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/store"
	"berth.dev/testkit/rpctest"
)

// attributesOf returns n attributes of the maximum size.
func attributesOf(n int) map[string]string {
	attributes := map[string]string{}
	for i := range n {
		attributes[fmt.Sprintf("%0128d", i)] = strings.Repeat("x", 256)
	}
	return attributes
}

// Every page fits in one message between replicas and gateways, even if its executors are
// large. All pages together contain every executor exactly once.
func TestPagesOfLargeExecutorsFitMessages(t *testing.T) {
	const registered = 600
	l := start(t, store.NewFake(store.FakeConfig{}))
	agents, executors := NewAgents(l, "default"), NewExecutors(l)
	var together sync.WaitGroup
	for i := range registered {
		together.Go(func() {
			_, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
				Id: fmt.Sprintf("e%04d", i), Address: "127.0.0.1:1", Nonce: "n", Resources: map[string]int64{"slots": 4},
				Attributes: attributesOf(maxRegistration / 400),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	client := berthv1.NewExecutorsClient(rpctest.Serve(t,
		func(r grpc.ServiceRegistrar) { berthv1.RegisterExecutorsServer(r, executors) }))
	listed, pages, total := 0, 0, 0
	for req := (&berthv1.ListExecutorsRequest{PageSize: 1000}); ; {
		answer, err := client.ListExecutors(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		size := proto.Size(answer)
		if pages++; size > replica.PageBytes+10<<10 {
			t.Errorf("page %d takes %d bytes", pages, size)
		}
		total += size
		for _, e := range answer.GetExecutors() {
			if want := fmt.Sprintf("e%04d", listed); e.GetId() != want {
				t.Errorf("listed %s, want %s", e.GetId(), want)
			}
			listed++
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if listed != registered || pages != 2 || total <= replica.PageBytes {
		t.Errorf("%d executors on %d pages with %d bytes", listed, pages, total)
	}
}

// The lists of SKUs and of pools have no pages. If a record would make its list too large
// for a message, the record is rejected, even if many callers write at the same time.
func TestCatalogSizeIsLimited(t *testing.T) {
	for _, c := range []struct {
		kind string
		put  func(ctx context.Context, c berthv1.CatalogClient, name string, attributes map[string]string) error
		list func(ctx context.Context, c berthv1.CatalogClient) (n int, answer proto.Message, err error)
	}{
		{"SKUs", func(ctx context.Context, c berthv1.CatalogClient, name string, attributes map[string]string) error {
			_, err := c.PutSku(ctx, &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: name,
				Resources: map[string]int64{"slots": 1}, Attributes: attributes}})
			return err
		}, func(ctx context.Context, c berthv1.CatalogClient) (int, proto.Message, error) {
			answer, err := c.ListSkus(ctx, &berthv1.ListSkusRequest{})
			return len(answer.GetSkus()), answer, err
		}},
		{"pools", func(ctx context.Context, c berthv1.CatalogClient, name string, attributes map[string]string) error {
			_, err := c.PutPool(ctx, &berthv1.PutPoolRequest{Pool: &berthv1.Pool{Name: name, Attributes: attributes}})
			return err
		}, func(ctx context.Context, c berthv1.CatalogClient) (int, proto.Message, error) {
			answer, err := c.ListPools(ctx, &berthv1.ListPoolsRequest{})
			return len(answer.GetPools()), answer, err
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			catalog := NewCatalog(start(t, store.NewFake(store.FakeConfig{})))
			client := berthv1.NewCatalogClient(rpctest.Serve(t, func(r grpc.ServiceRegistrar) {
				berthv1.RegisterCatalogServer(r,
					catalog)
			}))
			refused := make(chan *fault.Error, 120)
			var together sync.WaitGroup
			for i := range cap(refused) {
				together.Go(func() {
					if err := c.put(t.Context(), client, fmt.Sprintf("r%d", i), attributesOf(model.MaxAttributes)); err != nil {
						refused <- rpc.FromStatus(err)
					}
				})
			}
			together.Wait()
			close(refused)
			if len(refused) == 0 || len(refused) == cap(refused) {
				t.Fatalf("%d of %d are refused", len(refused), cap(refused))
			}
			n, answer, err := c.list(t.Context(), client)
			if size := proto.Size(answer); err != nil || n != cap(refused)-len(refused) || size < maxCatalogBytes-64<<10 ||
				size > maxCatalogBytes+64<<10 {
				t.Errorf("%d are listed in %d bytes, %d were refused: %v", n, size, len(refused), err)
			}
			for f := range refused {
				if f.Kind != fault.Exhausted || f.Reason != fault.ReasonTooLarge ||
					!strings.Contains(f.Message, "attributes: all "+c.kind) || !strings.Contains(f.Message, "4194304") {
					t.Fatalf("refused: %+v", f)
				}
			}
		})
	}
}

// In a full catalog, an existing SKU can be written again and made smaller, even if its
// name is spelled in another case.
func TestAFullCatalogCanBeReduced(t *testing.T) {
	catalog := NewCatalog(start(t, store.NewFake(store.FakeConfig{})))
	put := func(name string, attributes map[string]string) error {
		_, err := catalog.PutSku(t.Context(), &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: name,
			Resources: map[string]int64{"slots": 1}, Attributes: attributes}})
		return err
	}
	n := 0
	for ; ; n++ {
		if err := put(fmt.Sprintf("r%d", n), attributesOf(model.MaxAttributes)); fault.Is(err, fault.ReasonTooLarge) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name       string
		attributes map[string]string
		fits       bool
	}{
		{"r1", attributesOf(model.MaxAttributes), true},
		{"R1", attributesOf(model.MaxAttributes), true},
		{fmt.Sprintf("r%d", n), attributesOf(model.MaxAttributes), false},
		{"r1", nil, true},
		{fmt.Sprintf("r%d", n), attributesOf(model.MaxAttributes), true},
		{"r1", attributesOf(model.MaxAttributes), false},
	} {
		if err := put(step.name, step.attributes); step.fits && err != nil || !step.fits &&
			!fault.Is(err, fault.ReasonTooLarge) {
			t.Errorf("%s with %d attributes: %v", step.name, len(step.attributes), err)
		}
	}
}
