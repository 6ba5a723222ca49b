package internal

import (
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/services/executor-state/inventory"
)

// Catalog is berth.v1.Catalog over the loop.
type Catalog struct {
	berthv1.UnimplementedCatalogServer
	loop loop.Owner[*inventory.Core]
}

// NewCatalog serves the loop's core.
func NewCatalog(l loop.Owner[*inventory.Core]) *Catalog { return &Catalog{loop: l} }
