// Package chart tests the Helm chart: that it renders to objects that Kubernetes
// knows, that what it renders keeps the promises of the services (instance
// addresses, probes, orderly stops), that wrong values are refused in words that
// help, and that the binary takes every flag the chart gives it.
//
// It is a module outside the workspace, so that Helm and Kubernetes' libraries
// raise no version of what the services are built with.
package chart
