// Package show renders what the gateway answers: as tables and lines for
// people, as JSON and YAML for programs.
//
// It promises to be pure: messages and the present time go in, text comes out.
// Times of day are shown in the location of that present time. Names and
// reasons are the words of the interface, never translated; tables of usual
// names fit 80 columns, wide ones do not try to.
package show
