package store

// batch is the part of a transaction that comes from writes.
type batch struct {
	writes   int
	ops      []Op
	compares []Compare
	compared []string // their keys, each once
}

// fenceOps is what the fence adds to each list of a transaction, at most: two
// compares, two reads, one put.
const fenceOps = 2

// pack takes as many of the writes, from the first on, as fit into one
// transaction of the given size; the first is always taken. Equal compares are
// made once, and a key written again keeps its place with the later operation.
//
// A transaction's compares look at the state before it. A write that compares a
// key which an earlier one writes would not see that, so it begins the next
// transaction.
func pack(writes []Write, maxOps, maxBytes int) batch {
	var b batch
	some := 0
	for _, w := range writes {
		if some += len(w.Ops); some >= maxOps {
			break
		}
	}
	b.ops = make([]Op, 0, some+1)       // the fence adds one
	place := make(map[string]int, some) // of a key in ops
	known := map[Compare]bool{}         // compares taken
	compared := map[string]bool{}       // keys taken
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
				bytes += 2 * compareBytes(c) // read again when it fails
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
