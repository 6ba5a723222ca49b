// Package test runs the tests of the alerts in deploy/prometheus with Prometheus' own
// rules. It is a module of its own, because Prometheus has many dependencies. promtool would
// do the same, but it contains the clients of all clouds and takes minutes to build.
package test
