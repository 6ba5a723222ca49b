// Package request guarantees that a valid request can be queued, whatever the queue
// holds, and that everything that is stored of a request is bounded. It looks at one
// request alone: which requests exist, whether one is valid, whether two are the same,
// and how large one is.
//
//	request ──▶ Validate     ──▶ *fault.Error that names the JSON field
//	            WithDefaults ──▶ an upsert with all its fields
//	            Fingerprint  ──▶ a number that repeats of the request share
//	            SameBody     ──▶ whether an upsert changes what a reservation requests
//	            Size         ──▶ about how many bytes the record of a reservation takes
//
// It knows no records except its arguments, and it has no state.
//
// Read request.go first, then validate.go, fingerprint.go, body.go and size.go.
package request
