package store

// batch is the part of a transaction that comes from writes.
type batch struct {
	writes   int
	ops      []Op
	compares []Compare
	compared []string // the keys of compares, each once
}

const (
	// maxOps and maxBytes are the maximum number of operations and of bytes in a transaction
	// of several writes, including the fence.
	maxOps   = 120
	maxBytes = 256 << 10
	// fenceOps is the maximum number of elements that the fence adds to each list of a
	// transaction: two compares, two reads and one put.
	fenceOps = 2
)

// pack combines writes, starting with the first, into one batch until the next write does
// not fit into a transaction of the given size. It always includes the first write. Equal
// compares occur once. If a later write changes the same key, the later operation
// replaces the earlier one in its place.
//
// etcd evaluates the compares of a transaction on the state before the transaction. So if
// a write compares a key that an earlier write of the batch changes, the batch ends
// before this write.
func pack(writes []Write, maxOps, maxBytes int) batch {
	var b batch
	place := map[string]int{}     // of a key in ops
	known := map[Compare]bool{}   // compares in the batch
	compared := map[string]bool{} // keys in the batch
	size := 0
	for _, w := range writes {
		ops, compares, bytes := len(b.ops), len(b.compares), size
		for _, op := range w.Ops {
			if i, again := place[op.Key]; again {
				bytes -= opBytes(b.ops[i])
			} else {
				ops++
			}
			bytes += opBytes(op)
		}
		for _, c := range w.If {
			if _, written := place[c.Key]; written {
				return b
			}
			if !known[c] {
				compares++
				bytes += 2 * compareBytes(c) // twice, because the transaction reads the key if a compare fails
			}
		}
		if b.writes > 0 && (max(ops, compares)+fenceOps > maxOps || bytes > maxBytes) {
			return b
		}
		for _, op := range w.Ops {
			if i, again := place[op.Key]; again {
				b.ops[i] = op
				continue
			}
			place[op.Key] = len(b.ops)
			b.ops = append(b.ops, op)
		}
		for _, c := range w.If {
			if known[c] {
				continue
			}
			known[c] = true
			b.compares = append(b.compares, c)
			if !compared[c.Key] {
				compared[c.Key] = true
				b.compared = append(b.compared, c.Key)
			}
		}
		size = bytes
		b.writes++
	}
	return b
}
