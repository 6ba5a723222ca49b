// Package openapi holds the description of the REST interface.
package openapi

import _ "embed"

// Document is the OpenAPI 2.0 document of every REST call, in JSON.
//
//go:embed berth.swagger.json
var Document []byte
