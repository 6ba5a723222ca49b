// Package show renders the gateway's answers: as tables and lines for people, and as JSON and
// YAML for programs.
//
// It promises that its functions are pure: they turn messages and the current time into text.
// They show times in the location of the current time. Names and reasons are those of the
// API. Tables with usual names fit into 80 columns, except wide ones.
package show
