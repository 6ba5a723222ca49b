// Package jobfile reads job files: YAML or JSON with one document for each reservation. A
// document has the fields of the REST body and `job`, `stage` and `name`. A document with
// `kind: sku` or `kind: pool` has the fields of that body and `name`.
//
// It promises that it never ignores anything: it rejects unknown keys, duplicate keys and
// values of the wrong type, with the document, the line and the path of the field. The
// exception are output fields in `berth get -o yaml`, which are omitted so that the output
// can be edited and applied. A list from `get` stands for its items.
package jobfile
