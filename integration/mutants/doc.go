// Package mutants shows that the checkers can fail. A mutant is Berth with one of
// its rules broken; the simulator or chaos, whichever is named to hunt it, has to
// report a violation.
//
//	edits ──overlay──▶ go build / go test ──▶ hunter ──▶ a violation, or the mutant lives
//
// It promises that nothing broken is ever part of the source: an edit replaces a
// text that stands exactly once in its file, by an overlay of the build alone. A
// change to the source that an edit no longer fits fails TestMutantsFit, which is
// part of the tests; the hunt itself is make mutants.
package mutants
