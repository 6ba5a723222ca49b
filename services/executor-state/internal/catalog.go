package internal

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// maxCatalogBytes is the maximum size of all recorded SKUs, and likewise of all pools,
// because a list of them is one message.
const maxCatalogBytes = 4 << 20

// Catalog implements berth.v1.Catalog over the loop.
type Catalog struct {
	berthv1.UnimplementedCatalogServer
	loop loop.Owner[*inventory.Core]
	// puts admits one write at a time, so that each write counts all records.
	puts limiter
}

// NewCatalog returns a server that uses the loop's core.
func NewCatalog(l loop.Owner[*inventory.Core]) *Catalog {
	return &Catalog{loop: l, puts: newLimiter(1)}
}

// recorded is a SKU or a pool.
type recorded interface {
	proto.Message
	GetName() string
}

// put writes next, unless next makes the list of its kind larger than maxCatalogBytes. A
// change that makes the list smaller is always allowed.
func put[M recorded](ctx context.Context, s *Catalog, kind string, next M, list func(c *inventory.Core) []M,
	request any) (value any, err error) {
	err = s.puts.do(ctx, func() error {
		var all []M
		if err := s.loop.Read(ctx, false, func(c *inventory.Core) { all = list(c) }); err != nil {
			return err
		}
		total, more := 0, proto.Size(next)
		for _, m := range all {
			size := proto.Size(m)
			total += size
			if strings.EqualFold(m.GetName(), next.GetName()) {
				more -= size
			}
		}
		if more > 0 && total+more > maxCatalogBytes {
			err := fault.BadField(fault.ReasonTooLarge, "attributes",
				"all %s take %d bytes with this change, at most %d are allowed: shorten the attributes, or delete others",
				kind, total+more, maxCatalogBytes)
			err.Kind = fault.Exhausted
			return err
		}
		value, err = s.loop.Do(ctx, request)
		return err
	})
	return value, err
}

// skus returns the recorded SKUs.
func skus(c *inventory.Core) (list []*berthv1.Sku) {
	for _, sku := range c.SKUs() {
		list = append(list, wire.SKU(&sku))
	}
	return list
}

// pools returns the recorded pools.
func pools(c *inventory.Core) (list []*berthv1.Pool) {
	for _, p := range c.Pools() {
		list = append(list, wire.Pool(&p))
	}
	return list
}
