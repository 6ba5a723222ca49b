// Package mutants proves that the checkers can fail. A mutant is Berth with one broken
// rule. Its hunter, the simulator or chaos, must report a violation.
//
//	edits ──overlay──▶ go build / go test ──▶ hunter ──▶ a violation, or the mutant lives
//
// It promises that the source is never changed: an edit replaces a text that occurs
// exactly once in its file, in an overlay of the build. If an edit does not fit the source
// any more, TestMutantsFit fails, which is part of `make test`. `make mutants` is the hunt.
package mutants
