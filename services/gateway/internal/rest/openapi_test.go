package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/openapi"
	"berth.dev/pkg/access"
	"berth.dev/pkg/wire"
)

// content has the examples of a body, by media type.
type content map[string]struct {
	Examples map[string]struct{ Value json.RawMessage }
}

// operations are the operations of the OpenAPI document, by "GET /path".
func operations(t *testing.T) map[string]operation {
	t.Helper()
	var document struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(openapi.Document, &document); err != nil {
		t.Fatal(err)
	}
	all := map[string]operation{}
	for path, item := range document.Paths {
		for method, o := range item {
			all[strings.ToUpper(method)+" "+path] = o
		}
	}
	return all
}

type operation struct {
	OperationID string
	RequestBody struct{ Content content }
	Responses   map[string]struct{ Content content }
}

// The OpenAPI document has exactly the calls of api/http.yaml, the stream of events, and the
// paths in the table of access that have no method.
func TestTheDocumentHasEveryCall(t *testing.T) {
	rules, err := os.ReadFile("../../../../api/http.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"GET /v1/jobs/{job}/events"}
	for _, rule := range regexp.MustCompile(`(get|put|post|delete): (/\S+)`).FindAllStringSubmatch(string(rules), -1) {
		path := regexp.MustCompile(`\{\w+\.`).ReplaceAllString(rule[2], "{")
		want = append(want, strings.ToUpper(rule[1])+" "+path)
	}
	methods, served := access.Methods()
	for _, method := range methods {
		if !strings.HasPrefix(method, "/") && served[method]&access.Public != 0 {
			want = append(want, method)
		}
	}
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(operations(t)))
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The gateway serves every call of the OpenAPI document, and accepts each example of a body.
func TestTheGatewayServesTheDocument(t *testing.T) {
	for name, o := range operations(t) {
		method, path, _ := strings.Cut(name, " ")
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "1") // a name and an index
		bodies := map[string]string{}
		for example, e := range o.RequestBody.Content["application/json"].Examples {
			bodies[example] = string(e.Value)
		}
		if len(bodies) == 0 {
			bodies["no body"] = ""
		}
		for example, body := range bodies {
			status, answer := ask(t, &calls{}, method, path, body)
			local := o.OperationID == "Resign" && status == http.StatusBadRequest && strings.Contains(answer, "Resign") ||
				o.OperationID == "CreateSession" && status == http.StatusPreconditionFailed
			if status != http.StatusOK && !local {
				t.Errorf("%s (%s): %d %s", name, example, status, answer)
			}
		}
	}
}

// Each example of an answer has only fields of the answer, and each example of an error only
// those of an error.
func TestExamplesOfAnswersAreMessages(t *testing.T) {
	checked := 0
	var document struct {
		Components struct {
			Responses map[string]struct{ Content content }
		}
	}
	if err := json.Unmarshal(openapi.Document, &document); err != nil {
		t.Fatal(err)
	}
	for name, response := range document.Components.Responses {
		for example, e := range response.Content["application/json"].Examples {
			if err := protojson.Unmarshal(e.Value, &spb.Status{}); err != nil {
				t.Errorf("%s (%s): %v", name, example, err)
			}
			checked++
		}
	}
	for name, o := range operations(t) {
		method := methodNamed(strings.TrimRight(o.OperationID, "2"))
		if method == nil {
			continue // it is not a call
		}
		for _, body := range o.Responses["200"].Content {
			for example, e := range body.Examples {
				if e.Value[0] != '{' || example == "error" {
					continue
				}
				answer, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
				if err != nil {
					t.Fatal(err)
				}
				if err := protojson.Unmarshal(e.Value, answer.New().Interface()); err != nil {
					t.Errorf("%s (%s): %v", name, example, err)
				}
				checked++
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d examples were checked", checked)
	}
}

// No query parameter is a message other than a duration. strictQuery would reject such a parameter.
func TestQueriesHaveNoMessages(t *testing.T) {
	checked := 0
	for name, o := range operations(t) {
		method := methodNamed(strings.TrimRight(o.OperationID, "2"))
		if method == nil || len(o.RequestBody.Content) > 0 {
			continue
		}
		checked++
		fields := method.Input().Fields()
		for i := range fields.Len() {
			isTexts := fields.Get(i).IsMap() && fields.Get(i).MapValue().Kind() == protoreflect.StringKind
			if f := fields.Get(i); f.Message() != nil && !isTexts && f.Message().FullName() != wire.DurationName {
				t.Errorf("%s: %s is a %s", name, f.JSONName(), f.Message().FullName())
			}
		}
	}
	if checked < 15 {
		t.Errorf("%d calls were checked", checked)
	}
}

// methodNamed returns the method of berth.v1 with a name, or nil.
func methodNamed(name string) (found protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage(berthv1.File_berth_v1_event_proto.Package(),
		func(file protoreflect.FileDescriptor) bool {
			for i := range file.Services().Len() {
				if m := file.Services().Get(i).Methods().ByName(protoreflect.Name(name)); m != nil {
					found = m
				}
			}
			return found == nil
		})
	return found
}
