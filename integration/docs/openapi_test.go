package docs

import (
	"bytes"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"berth.dev/api/openapi"
)

// The OpenAPI document is valid, and each example fits its schema.
func TestOpenAPIDocumentIsValid(t *testing.T) {
	if err := document(t).Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.EnableExamplesValidation(),
		openapi3.EnableMultiError()); err != nil {
		t.Error(err)
	}
}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Every operation, parameter and property of the OpenAPI document has a description.
func TestOpenAPIDocumentIsComplete(t *testing.T) {
	doc := document(t)
	names := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			call := method + " " + path
			if o.Summary == "" || o.OperationID == "" {
				t.Errorf("%s: the operation requires a summary and an ID", call)
			}
			if other, ok := names[o.OperationID]; ok {
				t.Errorf("%s and %s have the same ID %s", call, other, o.OperationID)
			}
			names[o.OperationID] = call
			if len(o.Tags) != 1 || doc.Tags.Get(o.Tags[0]) == nil || doc.Tags.Get(o.Tags[0]).Description == "" {
				t.Errorf("%s: the operation requires one tag, which has a description", call)
			}
			for _, p := range o.Parameters {
				if p.Value.Description == "" {
					t.Errorf("%s: the parameter %s requires a description", call, p.Value.Name)
				}
			}
			if (method == "PUT" || method == "POST") && o.RequestBody == nil {
				t.Errorf("%s: the call requires a body", call)
			}
		}
	}
	var check func(at string, s *openapi3.SchemaRef)
	check = func(at string, s *openapi3.SchemaRef) {
		for name, property := range s.Value.Properties {
			at := at + "." + name
			if property.Ref != "" {
				continue // its schema has the description
			}
			if property.Value.Description == "" {
				t.Errorf("%s: the property requires a description", at)
			}
			check(at, property)
		}
		if s.Value.Items != nil && s.Value.Items.Ref == "" {
			check(at+"[]", s.Value.Items)
		}
	}
	for name, s := range doc.Components.Schemas {
		check(name, s)
		if !bytes.Contains(openapi.Document, []byte(`"#/components/schemas/`+name+`"`)) {
			t.Errorf("%s: nothing uses the schema", name)
		}
	}
}
