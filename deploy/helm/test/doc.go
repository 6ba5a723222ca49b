// Package chart tests the Helm chart: it renders to valid Kubernetes objects, the objects
// keep the promises of the services (instance addresses, probes, orderly stops), wrong
// values fail with a useful message, and the binary accepts every flag of the chart.
//
// It is a module outside the workspace, so that the libraries of Helm and Kubernetes do not
// raise the versions of the services' dependencies.
package chart
