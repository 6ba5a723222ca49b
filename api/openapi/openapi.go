// Package openapi provides a description of the REST interface that always matches the
// API: it is generated from the same files as the servers.
package openapi

import _ "embed"

// Document is the OpenAPI 3.1 document of every REST call, in JSON.
//
//go:embed berth.openapi.json
var Document []byte
