// Package sim repeats every failure exactly: each failure is identified by its seed, and
// the same seed always repeats the same run of a simulated Berth cluster. The cluster
// consists of the real cores with the real loop driver, committer and view, on the fake
// store. The network, the agents and the clients are simulated with one random sequence
// and a simulated clock.
//
// At every step one event happens:
//
//   - a replica takes a turn, a client sends a request, or time passes
//   - a message arrives or is lost, or a call arrives twice
//   - the answer of a transaction is lost, or its proposal is late
//   - a replica or an agent crashes and restarts
//   - a leader is deposed without knowing it, as by a false liveness probe
//   - an executor is cut off, or the store is full for a while
//   - a cell rejects an offer, does not answer, or no longer keeps what it accepted
//   - an operator drains an executor for a while, and a client repeats its last request with
//     another number of workers
//
// After every step the world checks all new revisions against the rules of package audit,
// and compares the records with the workers on the hosts. At the end the faults stop, and
// every acknowledged request must then be complete.
//
// Seeds differ in the frequency of faults and in the time that passes between events. With
// about half of the seeds, the registry soon deletes ended reservations. Clients then use
// names again, and old start and stop requests may arrive after that.
//
// An interleaving is such a world without chance or faults, in which a schedule chooses the
// order of events step by step. So a race can be played in every order within bounds. A
// failure of an interleaving is identified by its schedule.
//
// A Stage is a world without chance or faults that package play controls.
package sim
