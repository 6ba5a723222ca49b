package queue

import (
	"fmt"
	"reflect"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// A mark of before there were fingerprints matches any call with its ID.
func TestAnOldRequestMarkMatchesAnyCall(t *testing.T) {
	w := newWorld(Config{})
	w.successor(10)
	key := model.Key{Job: "j", Stage: "s", Name: "main"}
	w.input(model.Upsert{Key: key, Count: 2, RequestID: "old"})
	v := w.core.byKey[key][0]
	for _, mark := range v.r.Requests {
		if mark.Call == 0 {
			t.Error("a new mark has no fingerprint")
		}
	}
	old := *v.r
	old.Requests = []model.RequestMark{{ID: "old", Change: model.Created}}
	w.foreign(model.Changed{Ref: old.Ref(), Record: &old})
	replies := w.input(model.Upsert{Key: key, Count: 3, RequestID: "old"})
	reply := replies[len(replies)-1].(model.Reply)
	if u, ok := reply.Value.(Upserted); !ok || u.Change != model.Created || u.Reservation.UID != v.uid {
		t.Errorf("answered %+v", reply)
	}
}

// A request ID stands for one call: the same request with another body is refused.
func TestAnotherCallUnderARequestIDIsRefused(t *testing.T) {
	w := newWorld(Config{})
	w.successor(10)
	key := model.Key{Job: "j", Stage: "s", Name: "main"}
	w.input(model.Upsert{Key: key, Count: 3, RequestID: "new"})
	refused := w.input(model.Upsert{Key: key, Count: 4, RequestID: "new"})
	f := fault.Of(refused[len(refused)-1].(model.Reply).Err)
	if f == nil || f.Kind != fault.Conflict || f.Reason != fault.ReasonDuplicate || f.Message != `requestId: "new" was used for another call` {
		t.Errorf("refused with %v", f)
	}
}

// Every field of an upsert is part of its fingerprint, but for what names the call.
func TestTheFingerprintHasEveryField(t *testing.T) {
	base := good()
	base.RequestID = "id"
	call := callOf(base)
	if call == 0 || call != callOf(base) {
		t.Fatalf("%d, then %d", call, callOf(base))
	}
	leaves := 0
	var change func(path string, v reflect.Value)
	differs := func(path string, v reflect.Value, to any) {
		leaves++
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		if callOf(base) == call {
			t.Errorf("%s is not part of the fingerprint", path)
		}
		v.Set(before)
	}
	change = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				field := v.Type().Field(i)
				switch at := path + "." + field.Name; at {
				case ".RequestID", ".Trace", ".Fingerprint":
				case ".Spec.Constraints.AvoidFailed": // Berth's own, never a caller's
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
			differs(path, v, v.Uint()+2) // 0 is the default, and 1 may be written for it
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
			differs(path, v, reflect.New(v.Type().Elem()).Interface())
		default:
			t.Fatalf("%s is a %s", path, v.Kind())
		}
	}
	change("", reflect.ValueOf(&base).Elem())
	if leaves < 25 {
		t.Errorf("only %d fields were changed", leaves)
	}
}

// Where one thing may be written in two ways, both are the same call.
func TestTheFingerprintOfEqualCalls(t *testing.T) {
	one, two := good(), good()
	one.Count, two.Count = 0, 0
	one.Workers = []model.WorkerID{{Index: 1, Number: 1}, {Index: 0, Number: 2}}
	two.Workers = []model.WorkerID{{Index: 0, Number: 2}, {Index: 1, Number: 1}}
	two.Spec.Start, two.Spec.OnFailure = model.StartProgressive, model.OnFailureRequeue
	two.Spec.MaxAttempts = model.DefaultAttempts
	two.Trace = "00-1-1-01"
	one.RequestID, two.RequestID = "a", "b"
	if a, b := callOf(withDefaults(one)), callOf(withDefaults(two)); a != b {
		t.Errorf("%x and %x: %s", a, b, fmt.Sprint(two))
	}
}
