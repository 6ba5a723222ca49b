package request

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// The registry stores fingerprints, and later versions of Berth compare them. A fingerprint
// must therefore never change.
func TestFingerprintIsStable(t *testing.T) {
	u, order := good(), int64(-3)
	u.RequestID, u.Workers, u.Count = "id", []model.WorkerID{{Index: 1, Number: 1}, {Index: 0, Number: 2}}, 0
	u.Spec.Priority.Order, u.Spec.Constraints.SameShape = &order, true
	u.Spec.Task = model.Task{Command: "run", Args: []string{"a", "b"}, Env: map[string]string{"A": "1", "B": "2"},
		Payload: []byte{0, 1}}
	key := model.Key{Job: "j", Stage: "s", Name: "n"}
	for _, test := range []struct {
		request any
		want    uint64
	}{
		{u, 0xd5ba08a1c839e5c6},
		{Cancel{Key: key, IfEpoch: 7}, 0x281c424537e20276},
		{CancelJob{Job: "j"}, 0x89aae74c28a11fca},
		{CancelWorkers{Job: "j", Stage: "s", Workers: u.Workers}, 0xae2c757e1ec9817a},
		{Flush{Job: "j"}, 0xe26b55d283987f83},
		{Flush{Group: "g"}, 0x1ea665c43afa52d4},
	} {
		if got := Fingerprint(test.request); got != test.want {
			t.Errorf("%T: %#x, want %#x", test.request, got, test.want)
		}
	}
}

// Every field of an upsert is part of its fingerprint, except for the fields that only
// identify the call. Every field of its spec is one of the fields that upserts compare.
func TestFingerprintOfEveryField(t *testing.T) {
	base := good()
	base.RequestID = "id"
	want := Fingerprint(base)
	if want == 0 || want != Fingerprint(base) {
		t.Fatalf("%d, then %d", want, Fingerprint(base))
	}
	// The changes below of these fields are requests for nothing: no pool, and 0 of a resource.
	isNoDifference := map[string]bool{".Spec.Constraints.Resources": true, ".Spec.Constraints.Pools": true}
	leaves := 0
	var change func(path string, v reflect.Value)
	differs := func(path string, v reflect.Value, to any) {
		leaves++
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		if Fingerprint(base) == want {
			t.Errorf("%s is not part of the fingerprint", path)
		}
		if original := good().Spec; strings.HasPrefix(path, ".Spec") && !isNoDifference[path] &&
			Differences(&base.Spec, &original) == 0 {
			t.Errorf("%s is not one of the fields that upserts compare", path)
		}
		v.Set(before)
	}
	change = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			if at, isTime := v.Interface().(time.Time); isTime {
				differs(path, v, at.Add(time.Hour))
				return
			}
			for i := range v.NumField() {
				field := v.Type().Field(i)
				switch at := path + "." + field.Name; at {
				case ".RequestID", ".Trace", ".Fingerprint", ".Tenants":
				case ".Spec.Constraints.AvoidFailed", ".Spec.Constraints.RefusedBy",
					".Spec.Constraints.Defaults": // set by Berth, never by a caller
				default:
					change(at, v.Field(i))
				}
			}
		case reflect.String:
			differs(path, v, v.String()+"x")
		case reflect.Bool:
			differs(path, v, !v.Bool())
		case reflect.Int32, reflect.Int64:
			differs(path, v, v.Int()+1)
		case reflect.Uint8:
			differs(path, v, v.Uint()+2) // not v+1: the default 0 and an explicit 1 have the same fingerprint
		case reflect.Slice:
			list := reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1)
			reflect.Copy(list, v)
			differs(path, v, list.Interface())
		case reflect.Map:
			table := reflect.MakeMap(v.Type())
			for _, k := range v.MapKeys() {
				table.SetMapIndex(k, v.MapIndex(k))
			}
			table.SetMapIndex(reflect.ValueOf("more").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
			differs(path, v, table.Interface())
		case reflect.Pointer:
			differs(path, v, reflect.New(v.Type().Elem()).Interface()) // of a value that is not the default
		default:
			t.Fatalf("%s is a %s", path, v.Kind())
		}
	}
	change("", reflect.ValueOf(&base).Elem())
	if leaves < 25 {
		t.Errorf("only %d fields were changed", leaves)
	}
}

// Two requests that mean the same have the same fingerprint.
func TestFingerprintOfEqualRequests(t *testing.T) {
	one, two := good(), good()
	one.Count, two.Count = 0, 0
	one.Workers = []model.WorkerID{{Index: 1, Number: 1}, {Index: 0, Number: 2}}
	two.Workers = []model.WorkerID{{Index: 0, Number: 2}, {Index: 1, Number: 1}}
	two.Spec.Start, two.Spec.OnFailure = model.StartProgressive, model.OnFailureRequeue
	two.Spec.MaxAttempts = model.DefaultAttempts
	two.Trace = "00-1-1-01"
	one.RequestID, two.RequestID = "a", "b"
	if a, b := Fingerprint(WithDefaults(one)), Fingerprint(WithDefaults(two)); a != b {
		t.Errorf("%x and %x: %s", a, b, fmt.Sprint(two))
	}
}
