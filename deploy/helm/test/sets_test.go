package chart

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const notes = "berth/templates/NOTES.txt"

// publicSet has values that users copy from public charts.
type publicSet struct {
	Charts   string         `json:"charts"`
	Values   map[string]any `json:"values"`
	Refused  string         `json:"refused"` // words: the path of a value, or PATH=PART of the error
	Replaced []string       `json:"replaced"`
}

func publicSets(t *testing.T) []publicSet {
	t.Helper()
	text, err := os.ReadFile("testdata/public/sets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sets []publicSet
	if err := yaml.UnmarshalStrict(text, &sets); err != nil || len(sets) < 20 {
		t.Fatalf("%d sets: %v", len(sets), err)
	}
	return sets
}

// without returns the values of the set without those at some paths.
func (s publicSet) without(words []string) map[string]any {
	values := clone(s.Values).(map[string]any)
	for _, word := range words {
		at, name := values, word
		for at[name] == nil {
			component, rest, has := strings.Cut(name, ".")
			if !has {
				break
			}
			at, name = at[component].(map[string]any), rest
		}
		delete(at, name)
	}
	return values
}

// TestSetsOfPublicCharts checks that the chart uses or refuses every value of a set: the error
// of a refused value names it, and without another value the objects of the release differ.
func TestSetsOfPublicCharts(t *testing.T) {
	defaults := readValues(t, chartDir+"/values.yaml")
	for _, set := range publicSets(t) {
		t.Run(set.Charts, func(t *testing.T) {
			messages, paths := map[string]string{}, []string{}
			for _, word := range strings.Fields(set.Refused) {
				at, message, has := strings.Cut(word, "=")
				if !has {
					message = at[strings.LastIndex(at, ".")+1:]
				}
				messages[at], paths = message, append(paths, at)
			}
			for i, at := range paths {
				others := append(append([]string{}, paths[:i]...), paths[i+1:]...)
				if _, err := render(set.without(others)); err == nil || !strings.Contains(err.Error(), messages[at]) {
					t.Errorf("%s: the error is %v\nwant %s", at, err, messages[at])
				}
			}
			accepted := set.without(paths)
			decodedValues(t, set.Charts, accepted)
			whole, err := render(accepted)
			if err != nil {
				t.Fatal(err)
			}
			eachValue(accepted, defaults, "", func(at string) {
				if slices.Contains(set.Replaced, at) {
					return
				}
				if files, err := render(accepted); err == nil && reflect.DeepEqual(without(files, notes), without(whole, notes)) {
					t.Errorf("%s has no effect", at)
				}
			})
		})
	}
}

// eachValue calls f without one value after the other. It skips values that are empty or the
// default, whose effect TestValuesHaveEffect checks.
func eachValue(values, defaults any, at string, f func(at string)) {
	switch values := values.(type) {
	case []any:
		for _, item := range values {
			eachValue(item, nil, at, f)
		}
	case map[string]any:
		defaults, _ := defaults.(map[string]any)
		for name, value := range values {
			if reflect.DeepEqual(value, defaults[name]) {
				continue
			}
			below := strings.TrimPrefix(at+"."+name, ".")
			if v := reflect.ValueOf(value); v.Kind() == reflect.Map || v.Kind() == reflect.Slice && v.Len() == 0 {
				eachValue(value, defaults[name], below, f)
				continue
			}
			eachValue(value, nil, below, f)
			delete(values, name)
			f(below)
			values[name] = value
		}
	}
}

// clone returns a deep copy of decoded YAML.
func clone(value any) any {
	switch value := value.(type) {
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = clone(item)
		}
		return items
	case map[string]any:
		items := map[string]any{}
		for name, item := range value {
			items[name] = clone(item)
		}
		return items
	}
	return value
}
