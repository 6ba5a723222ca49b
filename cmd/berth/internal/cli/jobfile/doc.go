// Package jobfile reads job files: YAML (so JSON too), one document for each
// reservation, in the words of the REST body plus `job`, `stage` and `name`. A
// document that says `kind: sku` or `kind: pool` is one of those, in the words
// of its own body plus `name`.
//
// It promises that nothing is guessed and nothing is dropped in silence: a key
// that is no field, a key given twice or a value of the wrong kind is refused
// with the document, the line and the path of the field. The exception is what
// `berth get -o yaml` prints and Berth sets by itself: it is left out, so that
// what was printed can be edited and applied. A list as `get` prints it stands
// for its items.
package jobfile
