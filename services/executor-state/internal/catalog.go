package internal

import (
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/services/executor-state/inventory"
)

// Catalog is berth.v1.Catalog over the loop.
type Catalog struct {
	berthv1.UnimplementedCatalogServer
	loop *loop.Loop[*inventory.Core]
}

// NewCatalog serves the loop's core.
func NewCatalog(l *loop.Loop[*inventory.Core]) *Catalog { return &Catalog{loop: l} }
