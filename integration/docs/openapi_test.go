package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
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

// Every operation, parameter and property of the OpenAPI document has a description, and every
// body of an operation has an example.
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
			if body := o.RequestBody; body != nil {
				requireExamples(t, call+": the body", body.Value.Content)
			}
			answers := 0
			for status, response := range o.Responses.Map() {
				if response.Ref == "" && len(response.Value.Content) > 0 {
					requireExamples(t, call+": the answer "+status, response.Value.Content)
					answers++
				}
			}
			if answers == 0 {
				t.Errorf("%s: the operation requires an answer with a body", call)
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

func requireExamples(t *testing.T, body string, content openapi3.Content) {
	t.Helper()
	for media, c := range content {
		if len(c.Examples) == 0 {
			t.Errorf("%s as %s requires an example", body, media)
		}
	}
}

// A cluster accepts each example of a request: the gateway decodes it strictly, and the service
// finds no wrong field. A cluster may refuse it because of its own state. The tests of the
// gateway decode the examples of answers.
func TestOpenAPIRequestsAreAccepted(t *testing.T) {
	w := runner{t: t}
	if err := w.dev([]string{"dev", "--listen", "127.0.0.1:0", "--agents", "0"}); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	sent := 0
	for path, item := range document(t).Paths.Map() {
		for method, o := range item.Operations() {
			if o.RequestBody == nil {
				continue
			}
			for name, example := range o.RequestBody.Value.Content["application/json"].Examples {
				body, err := json.Marshal(example.Value.Value)
				if err != nil {
					t.Fatal(err)
				}
				sent++
				// Each example has a job of its own, so no example depends on another.
				url := strings.NewReplacer("{service}", "registry", "{job}", fmt.Sprintf("job-%d", sent)).Replace(path)
				url = "http://" + w.real + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(url, "main")
				request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				answer, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				switch answer.StatusCode {
				case http.StatusOK, http.StatusConflict, http.StatusPreconditionFailed:
					continue
				case http.StatusNotFound:
					if bytes.Contains(text, []byte("there is no executor main")) ||
						bytes.Contains(text, []byte("there is no reservation job-")) ||
						bytes.Contains(text, []byte("is not registered")) {
						continue
					}
				case http.StatusBadRequest:
					if bytes.Contains(text, []byte("the current term of registry")) {
						continue // the term is that of another cluster
					}
				}
				t.Errorf("%s %s (%s): %s %s", method, path, name, answer.Status, text)
			}
		}
	}
	if sent < 15 {
		t.Errorf("%d examples were sent", sent)
	}
}
