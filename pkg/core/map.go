package core

// Drop deletes from a map that may have been large. A map never shrinks, so an empty one
// is replaced: what was deleted takes no memory.
func Drop[K comparable, V any](m *map[K]V, key K) {
	if delete(*m, key); len(*m) == 0 {
		*m = map[K]V{}
	}
}
