// Package jobfile reads job files: YAML or JSON with one document for each reservation. A
// document has the fields of the REST body and `job`, `stage` and `name`. A document with
// `kind: sku` or `kind: pool` has the fields of that body and `name`.
//
// It promises that it never ignores anything: it rejects unknown keys, duplicate keys and
// values of the wrong type. The error names the document, the line and the path of the field.
// The exceptions are the output fields of `berth get -o yaml`: they are dropped, so that the
// output can be edited and applied. A list from `get` is read as its items.
package jobfile
