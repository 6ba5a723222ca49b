// Package chart proves that the Helm chart fits the binary and the services: the chart
// renders to valid Kubernetes objects, the objects satisfy what the services require
// (addresses of replicas, probes, orderly stops), wrong values fail with a useful
// message, and the binary accepts every flag of the chart.
//
// The package is in a module outside the workspace, so that the libraries of Helm and
// Kubernetes do not raise the versions of the services' dependencies.
package chart
