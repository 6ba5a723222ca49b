package store

import (
	"fmt"
	"strings"
	"testing"
)

// parseWrite parses "k=v -k @k5 !k", which stand for a put, a delete, a compare of the
// revision and a compare for absence.
func parseWrite(s string) (w Write) {
	for _, word := range strings.Fields(s) {
		switch word[0] {
		case '-':
			w.Ops = append(w.Ops, Delete(word[1:]))
		case '@':
			var rev int64
			fmt.Sscan(word[2:], &rev) //nolint:errcheck // the test's own input
			w.If = append(w.If, ModifiedAt(word[1:2], rev))
		case '!':
			w.If = append(w.If, Absent(word[1:]))
		default:
			k, v, _ := strings.Cut(word, "=")
			w.Ops = append(w.Ops, Put(k, []byte(v)))
		}
	}
	return w
}

func (b batch) String() string {
	var words []string
	for _, op := range b.ops {
		if op.Delete {
			words = append(words, "-"+op.Key)
		} else {
			words = append(words, op.Key+"="+string(op.Value))
		}
	}
	for _, c := range b.compares {
		words = append(words, fmt.Sprintf("@%s%d", c.Key, c.Revision))
	}
	return strings.Join(words, " ")
}

func TestPack(t *testing.T) {
	big := "a=" + strings.Repeat("x", 1000)
	for _, c := range []struct {
		name   string
		writes []string
		taken  int
		want   string
	}{
		{"order is kept", []string{"b=1 a=1", "c=1"}, 2, "b=1 a=1 c=1"},
		{"put put", []string{"a=1 b=1", "a=2"}, 2, "a=2 b=1"},
		{"put delete", []string{"a=1 b=1", "-a"}, 2, "-a b=1"},
		{"delete put", []string{"-a b=1", "a=2"}, 2, "a=2 b=1"},
		{"twice in one write", []string{"a=1 a=2"}, 1, "a=2"},
		{"equal compares are sent once", []string{"a=1 @x5", "b=1 @x5 @y6"}, 2, "a=1 b=1 @x5 @y6"},
		{"two compares of one key", []string{"a=1 @x5", "b=1 !x"}, 2, "a=1 b=1 @x5 @x0"},
		{"compare of a key that the same write changes", []string{"a=1 @a5", "b=1"}, 2, "a=1 b=1 @a5"},
		{"compare of a key written before", []string{"a=1", "b=1 @a5", "c=1"}, 1, "a=1"},
		{"key written after its compare", []string{"b=1 @a5", "a=1"}, 2, "b=1 a=1 @a5"},
		{"as many as fit", []string{"a= b= c=", "d= e=", "f= g= h=", "i="}, 2, "a= b= c= d= e="},
		{"a repeated write uses no space", []string{"a= b= c= d= e=", "a=2 f="}, 2, "a=2 b= c= d= e= f="},
		{"compares count too", []string{"a= @a1 @b1 @c1 @d1", "b= @e1 @f1", "c= @g1"}, 2, "a= b= @a1 @b1 @c1 @d1 @e1 @f1"},
		{"never split", []string{"a= b= c= d= e= f= g= h= i= j=", "k="}, 1, "a= b= c= d= e= f= g= h= i= j="},
		{"a large write is sent alone", []string{big, "b=1"}, 1, big},
		{"a large one waits", []string{"b=1", big}, 1, "b=1"},
	} {
		var writes []Write
		for _, w := range c.writes {
			writes = append(writes, parseWrite(w))
		}
		b := pack(writes, 6+fenceOps, 600)
		if b.writes != c.taken || b.String() != c.want {
			t.Errorf("%s: packed %d: %q, want %d: %q", c.name, b.writes, b, c.taken, c.want)
		}
	}
}
