// Package berthv1 has the messages and services of Berth's public API, and changes only
// by added fields and calls. Clients of every earlier version of the API keep working.
//
// The sources are the .proto files in this directory. Berth serves the API over gRPC and
// REST. The remaining text of this comment is about generated code: the files *.pb.gw.go
// translate REST to gRPC.
package berthv1

// This file is called api.go because go doc shows the package comments in the order of the
// file names, and every generated file *.pb.gw.go has one.
