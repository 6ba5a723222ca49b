package store

import "fmt"

// etcd's limits at its defaults. [Fake] enforces them, [Etcd] checks them before
// it sends, because past the server's limit of size the client has one of its
// own whose error looks like a full disk.
const (
	MaxTxnOps   = 128
	MaxTxnBytes = 3 << 19
)

// checkSize refuses a transaction that is larger than etcd takes.
func checkSize(txn Txn) error {
	if n := max(len(txn.If), len(txn.Then), len(txn.Else)); n > MaxTxnOps {
		return fmt.Errorf("%w: %d operations", ErrTooLarge, n)
	}
	if n := txnBytes(txn); n > MaxTxnBytes {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	return nil
}

// checkTxn refuses what etcd refuses before it looks at any key.
func checkTxn(txn Txn) error {
	if err := checkSize(txn); err != nil {
		return err
	}
	seen := make(map[string]bool, len(txn.Then))
	for _, op := range txn.Then {
		if seen[op.Key] || op.Key == "" {
			return fmt.Errorf("%w: key %q empty or twice in one transaction", ErrInvalid, op.Key)
		}
		seen[op.Key] = true
	}
	for _, op := range txn.Then {
		if op.End == "" {
			continue
		}
		for key := range seen {
			if op.Key < key && key < op.End {
				return fmt.Errorf("%w: key %q is within a range that the same transaction deletes", ErrInvalid, key)
			}
		}
	}
	return nil
}

// txnBytes is about how large a transaction is on the wire: its strings, and the
// numbers and tags around them.
func txnBytes(txn Txn) int {
	n := 0
	for _, c := range txn.If {
		n += compareBytes(c)
	}
	for _, op := range txn.Then {
		n += opBytes(op)
	}
	for _, key := range txn.Else {
		n += len(key) + overhead
	}
	return n
}

// overhead is what a key costs on the wire beside its bytes, at most.
const overhead = 32

func compareBytes(c Compare) int { return len(c.Key) + len(c.Value) + overhead }

func opBytes(op Op) int { return len(op.Key) + len(op.End) + len(op.Value) + overhead }
