// Package sim plays a Berth from a seed: the real cores with the real loop driver,
// committer and view, on the fake store. The network, the agents and the clients are
// simulated from one random sequence, with a simulated clock.
//
// At every step one thing happens: a replica takes a turn, a message arrives or is lost, a
// call arrives twice, the answer of a transaction is lost or its proposal is late, a
// replica or an agent crashes and restarts, a leader is deposed without knowing it (as by a
// false liveness probe), an executor is cut off, the store is full for a while, a client
// sends a request, or time passes. After every step all new revisions are checked against
// the invariants (package audit), and against the workers on the hosts. At the end the
// faults stop, and everything that was acknowledged must be complete.
//
// Seeds differ in how much goes wrong and how much time passes. In every second seed ended
// reservations are soon deleted, so that names are used again and old start and stop
// requests may arrive after that.
//
// A failure is a number: the same seed plays the same run.
//
// An interleaving is such a world without chance or faults, in which the order of events is
// chosen step by step, so that a race can be played in every order within bounds. A failure
// there is a schedule.
//
// A Stage is a world without chance or faults that package play controls.
package sim
