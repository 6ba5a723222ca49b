package store

// batch is the part of a transaction that comes from writes.
type batch struct {
	writes   int
	ops      []Op
	compares []Compare
	compared []string // their keys, each once
}

const (
	// maxOps and maxBytes bound a transaction of several writes, the fence included.
	maxOps   = 120
	maxBytes = 256 << 10
	// fenceOps is the maximum that the fence adds to each list of a transaction: two
	// compares, two reads, one put.
	fenceOps = 2
)

// pack combines as many of the writes, from the first on, as fit into one transaction of
// the given size. The first write is always included. Equal compares occur once. A key
// that is written again keeps its place, with the later operation.
//
// A transaction evaluates its compares on the state before it. So a write that compares a
// key which an earlier write changes starts the next transaction.
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
				bytes += 2 * compareBytes(c) // the key is read if the compare fails
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
