// Package controlv1 has the messages and services between Berth's processes, including
// agents, and changes only by added fields and calls. So old and new processes of a
// cluster run side by side. It is not a public API.
//
// The sources are the .proto files in this directory.
package controlv1
