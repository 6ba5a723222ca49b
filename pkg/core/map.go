package core

// Drop deletes a key from a map that may have been large. If the map is empty after that,
// Drop replaces it with a new map, because a Go map keeps its memory when keys are
// deleted.
func Drop[K comparable, V any](m *map[K]V, key K) {
	if delete(*m, key); len(*m) == 0 {
		*m = map[K]V{}
	}
}
