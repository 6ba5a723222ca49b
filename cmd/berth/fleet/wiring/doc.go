// Package wiring is the network between the processes of a fleet, for those who
// break it: proxies that the processes are told of ([Links]), or a host of its
// own for each, as far as the network goes ([Namespaces]).
//
// It promises that what is cut is silent, as a broken cable is: nobody is told
// that anything ended, and what connections had sent goes on when they are whole
// again. It sees nothing of what is carried.
package wiring
