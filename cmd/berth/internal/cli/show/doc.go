// Package show renders the gateway's answers with pure functions: the text depends only
// on the message and the current time. It renders tables and lines for people, and JSON
// and YAML for programs.
//
// Times are in the location of the current time. Names and reasons are the same as in the
// API. Tables with names of usual length fit into 80 columns, except wide tables.
package show
