package demo

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth.dev/api/fault"
)

// startMark is a command with which each worker appends a mark to a file. Two equal marks
// show that a worker was started twice. The shell appends a short line atomically.
const startMark = `echo "$BERTH_JOB/$BERTH_STAGE/$BERTH_WORKER_INDEX.$BERTH_WORKER_NUMBER@$BERTH_EPOCH" >> "$WORK/starts"
`

// A word is a sequence of bytes between spaces, tabs and newlines. The script does not
// use wc, because wc depends on the locale and may count differently on another host.
const (
	blanks = " \t\n"
	words  = `LC_ALL=C awk '{ n += NF } END { print n + 0 }'`
)

// countScript counts the words of the documents that belong to the worker's shard. The
// payload lists all documents.
const countScript = `awk -v n="$SHARDS" -v i="$BERTH_WORKER_INDEX" 'NR % n == i' "$BERTH_PAYLOAD_FILE" |
  tr '\n' '\0' | xargs -0 cat | ` + words + ` > "$WORK/count-$BERTH_WORKER_INDEX"`

// sumScript adds the counts of all shards. It fails if the sum differs from the number of
// words in all documents.
const sumScript = `sum=$(cat "$WORK"/count-* | awk '{ s += $1 } END { print s }')
all=$(tr '\n' '\0' < "$BERTH_PAYLOAD_FILE" | xargs -0 cat | ` + words + `)
echo "$sum" > "$WORK/total"
test "$sum" -eq "$all"`

// documents lists the *.md files below a directory, and counts their words.
func documents(dir string) (files []string, count int, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != dir:
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		absolute, err := filepath.Abs(path)
		files = append(files, absolute)
		count += len(strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(blanks, r) }))
		return err
	})
	if err != nil {
		return nil, 0, fault.New(fault.Invalid, fault.ReasonInvalid, "--docs %s cannot be read", dir).Because(err)
	}
	if len(files) == 0 {
		return nil, 0, fault.New(fault.Invalid, fault.ReasonInvalid,
			"--docs %s contains no *.md file; run berth in a checkout, or set another directory", dir)
	}
	slices.Sort(files)
	return files, count, nil
}

// list returns the payload: one document per line.
func (d *demo) list() []byte { return []byte(strings.Join(d.files, "\n") + "\n") }

// total returns the sum that the worker of the second stage wrote.
func (d *demo) total() (int, error) {
	text, err := os.ReadFile(filepath.Join(d.work, "total"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// startedTwice returns the number of workers that were started more than once, and the
// number of workers that were started.
func (d *demo) startedTwice() (twice, started int, err error) {
	text, err := os.ReadFile(filepath.Join(d.work, "starts"))
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]int{}
	for _, mark := range strings.Fields(string(text)) {
		seen[mark]++
	}
	for mark, n := range seen {
		if n > 1 {
			twice++
			fmt.Fprintf(d.out, "         %s was started %d times\n", mark, n)
		}
	}
	return twice, len(seen), nil
}
