// Package attack plays strangers against real processes: whoever can write to etcd,
// reach a listener or run an agent, and does what no part of Berth would. No service
// may restart for it, and whatever is not attacked is served as before.
package attack
