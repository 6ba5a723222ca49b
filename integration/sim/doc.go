// Package sim plays a whole Berth from a seed: the real cores, driven by the
// real loop driver and the real committer and view, on the fake store, with a
// network, agents and clients made of one random sequence and no clock but its
// own.
//
// At every step one thing happens: a replica takes a turn, a message arrives or
// is lost, a call arrives twice, a transaction's answer is lost or its proposal
// comes late, a replica or an agent crashes and comes back, a leader is deposed
// without knowing it, which is what a wrong proof of its death does, an executor
// is cut off, the store is full for a while, a client asks for something, time
// passes. After every step all revisions so far are checked against the invariants
// (package audit), and what they say of the hosts against the hosts. In the end the
// faults stop, and everything that was acknowledged has to be where it belongs.
//
// No two seeds are alike in how much goes wrong and how much time passes. In every
// second one what has ended is soon forgotten, so that names come again, and orders
// may come so late that they meet them.
//
// A failure is a number: the same seed plays the same run.
//
// An interleaving is such a world without chance or fault, in which the order of
// all that may happen is chosen step by step, so that a race can be played in
// every order of a bound. A failure there is a schedule.
//
// A Stage is a world without chance, too: package play directs it.
package sim
