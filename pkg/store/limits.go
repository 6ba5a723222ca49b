package store

import "fmt"

// The default limits of etcd. [Fake] enforces them. [Etcd] checks them before it sends a
// transaction, because the etcd client has another, higher size limit whose error looks
// like a full disk.
const (
	MaxTxnOps   = 128
	MaxTxnBytes = 3 << 19
)

// checkSize returns an error if a transaction is larger than etcd accepts.
func checkSize(txn Txn) error {
	if n := max(len(txn.If), len(txn.Then), len(txn.Else)); n > MaxTxnOps {
		return fmt.Errorf("%w: %d operations", ErrTooLarge, n)
	}
	if n := txnBytes(txn); n > MaxTxnBytes {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	return nil
}

// checkTxn returns an error for a transaction that etcd rejects before it reads any key.
func checkTxn(txn Txn) error {
	if err := checkSize(txn); err != nil {
		return err
	}
	seen := make(map[string]bool, len(txn.Then))
	for _, op := range txn.Then {
		if seen[op.Key] || op.Key == "" {
			return fmt.Errorf("%w: key %q is empty or occurs twice in one transaction", ErrInvalid, op.Key)
		}
		seen[op.Key] = true
	}
	for _, op := range txn.Then {
		if op.End == "" {
			continue
		}
		for key := range seen {
			if op.Key < key && key < op.End {
				return fmt.Errorf("%w: key %q is in a range that the same transaction deletes", ErrInvalid, key)
			}
		}
	}
	return nil
}

// txnBytes returns an upper estimate of the encoded size of a transaction: its strings,
// and the numbers and tags of each.
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

// overhead is the maximum number of encoded bytes that a key needs in addition to its own
// bytes.
const overhead = 32

func compareBytes(c Compare) int { return len(c.Key) + len(c.Value) + overhead }

func opBytes(op Op) int { return len(op.Key) + len(op.End) + len(op.Value) + overhead }
