// Package mutants proves that the checkers detect broken rules, and never changes the
// source. A mutant is a Berth with one broken rule. Its hunter (the simulator, chaos or transcripts)
// must report a violation.
//
//	edits ──overlay──▶ go build / go test ──▶ hunter ──▶ a violation, or the mutant lives
//
// An edit replaces a text that occurs exactly once in its file. The replacement is only
// in an overlay of the build. If an edit no longer fits the source, TestMutantsFit fails,
// which is part of `make test`. `make mutants` runs the hunters.
package mutants
