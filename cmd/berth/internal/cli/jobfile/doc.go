// Package jobfile reads a job file without ignoring any input: it rejects unknown keys,
// duplicate keys and values of the wrong type. The error names the document, the line and
// the path of the field.
//
// A job file is YAML or JSON with one document for each reservation. A document has the
// fields of the REST body and `job`, `stage` and `name`. A document with `kind: sku` or
// `kind: pool` has the fields of the body of an SKU or a pool, and `name`.
//
// The output of `berth get -o yaml` can be edited and applied. For this purpose the package
// ignores the output fields, and reads each item of a list as a document.
package jobfile
