// Package chart proves that the Helm chart fits the binary and the services. The chart
// renders to valid Kubernetes objects, which satisfy what the services require: addresses
// of replicas, probes, orderly stops, and certificates with the identity of each process.
// Wrong values fail with a useful message. The binary accepts every flag of the chart, and
// starts with it.
//
// The package is in a module outside the workspace, so that the libraries of Helm and
// Kubernetes do not raise the versions of the services' dependencies.
package chart
