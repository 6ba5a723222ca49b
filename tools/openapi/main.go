// Command openapi makes the OpenAPI 3.1 document of the REST API.
//
//	openapi API
//
// It converts API/openapi/berth.swagger.json, which protoc-gen-openapiv2 makes of the proto
// files, merges API/openapi.yaml into the result, and writes API/openapi/berth.openapi.json.
// An object is merged, a list is appended, null deletes, and any other value replaces.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: openapi API")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(api string) error {
	input := filepath.Join(api, "openapi", "berth.swagger.json")
	text, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	doc, err := convert(text)
	if err != nil {
		return fmt.Errorf("%s: %w", input, err)
	}
	if text, err = os.ReadFile(filepath.Join(api, "openapi.yaml")); err != nil {
		return err
	}
	var changes map[string]any
	if err := yaml.Unmarshal(text, &changes); err != nil {
		return fmt.Errorf("openapi.yaml: %w", err)
	}
	merge(doc, changes)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	valid, err := openapi3.NewLoader().LoadFromData(out.Bytes())
	if err != nil {
		return err
	}
	if err := valid.Validate(context.Background(), openapi3.IsOpenAPI31OrLater(),
		openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(api, "openapi", "berth.openapi.json"), out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Remove(input)
}

// convert converts an OpenAPI 2.0 document.
func convert(text []byte) (map[string]any, error) {
	var old openapi2.T
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	rename(&old)
	converted, err := openapi2conv.ToV3(&old)
	if err != nil {
		return nil, err
	}
	converted.OpenAPI = "3.1.1" // OpenAPI 3.0 has no mutual TLS
	for path, item := range converted.Paths.Map() {
		for _, operation := range item.Operations() {
			describe(operation)
			mapParameters(operation)
		}
		if item.Put != nil {
			// The generated body omits the fields that the path sets. A body may repeat them.
			object := item.Put.Responses.Value("200").Value.Content["application/json"].Schema
			item.Put.RequestBody.Value.Content["application/json"].Schema = object
		}
		if item.Get != nil && strings.Contains(path, "{") {
			item.Get.Responses.Set("404", response("NotFound"))
		}
	}
	if text, err = json.Marshal(converted); err != nil {
		return nil, err
	}
	text = fieldNames.ReplaceAllFunc(text, jsonName)
	text = enumValues.ReplaceAllFunc(text, once)
	var doc map[string]any
	return doc, json.Unmarshal(text, &doc)
}

// rename gives the parameters in paths the names that the reference documents: the last part
// of the name of the field, such as job for reservation.job.
func rename(doc *openapi2.T) {
	paths := map[string]*openapi2.PathItem{}
	for path, item := range doc.Paths {
		path = qualifier.ReplaceAllString(path, "{")
		if paths[path] == nil {
			paths[path] = &openapi2.PathItem{}
		}
		for method, operation := range item.Operations() {
			for _, p := range operation.Parameters {
				if p.In == "path" {
					p.Name = p.Name[strings.LastIndex(p.Name, ".")+1:]
				}
			}
			paths[path].SetOperation(method, operation)
		}
	}
	doc.Paths = paths
}

// qualifier matches the start of a parameter in a path, up to the last part of its name.
var qualifier = regexp.MustCompile(`\{[a-z_.]*\.`)

// describe splits the comment of a method into a summary, which is the first sentence, and a
// description. It refers to the errors that every call can return.
func describe(operation *openapi3.Operation) {
	comment := strings.ReplaceAll(operation.Summary, "\n", " ")
	operation.Summary, operation.Description, _ = strings.Cut(comment, ". ")
	operation.Summary = strings.TrimSuffix(operation.Summary, ".")
	for status, name := range map[string]string{
		"400": "Invalid", "403": "Denied", "429": "Exhausted", "503": "Unavailable", "default": "Error",
	} {
		operation.Responses.Set(status, response(name))
	}
	ok := "The call succeeded."
	operation.Responses.Value("200").Value.Description = &ok
	if operation.RequestBody != nil {
		operation.RequestBody.Value.Extensions = nil // the name of the body in OpenAPI 2.0
	}
}

// mapParameters describes the parameters for the elements of a map, such as attributes[zone]=a,
// as an object. In OpenAPI 2.0 such a parameter has a placeholder for the key.
func mapParameters(operation *openapi3.Operation) {
	explode := true
	for _, p := range operation.Parameters {
		if name, isMap := strings.CutSuffix(p.Value.Name, "[string]"); isMap {
			values := openapi3.AdditionalProperties{Schema: p.Value.Schema}
			p.Value.Name, p.Value.Style, p.Value.Explode = name, openapi3.SerializationDeepObject, &explode
			p.Value.Schema = openapi3.NewObjectSchema().NewRef()
			p.Value.Schema.Value.AdditionalProperties = values
		}
	}
}

func response(name string) *openapi3.ResponseRef {
	return &openapi3.ResponseRef{Ref: "#/components/responses/" + name}
}

// fieldNames matches the name of a field in a comment.
var fieldNames = regexp.MustCompile("`[a-z]+(_[a-z]+)+`")

// jsonName returns the name of a field as JSON has it.
func jsonName(name []byte) []byte {
	words := bytes.Split(name, []byte("_"))
	for _, word := range words[1:] {
		word[0] -= 'a' - 'A'
	}
	return bytes.Join(words, nil)
}

// enumValues matches the name of a value in the description of an enum, and the name with which
// its comment may begin.
var enumValues = regexp.MustCompile(`- [A-Z_]+: [A-Z_]+: `)

// once removes the second of two equal names.
func once(names []byte) []byte {
	first, second, _ := bytes.Cut(names[2:], []byte(" "))
	if bytes.Equal(first, bytes.TrimSpace(second)) {
		return names[:2+len(first)+1]
	}
	return names
}

// merge applies changes to a document.
func merge(doc, changes map[string]any) {
	for key, change := range changes {
		switch change := change.(type) {
		case nil:
			delete(doc, key)
			continue
		case map[string]any:
			if old, ok := doc[key].(map[string]any); ok {
				merge(old, change)
				continue
			}
		case []any:
			if old, ok := doc[key].([]any); ok {
				doc[key] = append(old, change...)
				continue
			}
		}
		doc[key] = change
	}
}
