// Package core provides deterministic data structures for the cores: equal calls lead to
// equal states.
//
//   - [Ordered] is an ordered set.
//   - [Journal] has the changes of effects that are not durable yet, and undoes exactly the
//     effects that are abandoned.
//   - [Drop] deletes a key from a map that may have been large.
//
// The functions depend only on their arguments, so a core that uses them stays
// deterministic. None of them is safe for concurrent use, because one goroutine owns each
// core.
//
// Only the assigner's core uses Journal. The other two cores have journals of their own,
// because a shared journal needs more code than it replaces:
//
//   - The registry's journal keeps one durable record for each reference and stamps a
//     committed reservation with its epoch. A shared journal would need callbacks that get,
//     set and stamp a record.
//   - Executor-state undoes whole records through the one function that sets them. Its
//     journal is a list of previous records.
//
// Each core also has its own quarantine. The cores isolate different objects: the registry
// stages, the assigner UIDs, and executor-state UIDs, executors, presences, pools and
// ordinals. Each core reacts differently. Only a field and its getter would be shared.
package core
