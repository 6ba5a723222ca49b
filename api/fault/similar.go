package fault

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// maxSimilar is the maximum number of names that an error suggests.
const maxSimilar = 3

// Similar returns the known names that a word most likely means, the nearest first: at most 2
// letters differ, without regard to case, or the word is the beginning of the name.
func Similar(word string, known iter.Seq[string]) []string {
	type candidate struct {
		name     string
		distance int
	}
	var list []candidate
	word = strings.ToLower(word)
	for name := range known {
		folded := strings.ToLower(name)
		most := min(2, max(len(word), len(folded))/2)
		far := len(folded)-len(word) > most || len(word)-len(folded) > most
		begins := len(word) > 1 && strings.HasPrefix(folded, word)
		if d := most + 1; begins || !far {
			if !far {
				d = Distance(word, folded)
			}
			if begins || d <= most {
				list = append(list, candidate{name, d})
			}
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var names []string
	for _, c := range list[:min(len(list), maxSimilar)] {
		names = append(names, c.name)
	}
	return slices.Compact(names)
}

// DidYouMean returns the end of a message about a word that is not known: the similar names, or
// nothing if there are none.
func DidYouMean(word string, known iter.Seq[string]) string {
	names := Similar(word, known)
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}

// Distance returns the number of letters to insert, delete or replace between two words.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
