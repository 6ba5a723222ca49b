// Package chart draws lines over two axes as SVG, for documents that are read in
// light and in dark: colours and letters are the reader's, nothing is embedded.
//
//	Chart{Lines} ──▶ axes: range, ticks ──▶ template ──▶ SVG
//
// Each axis names its unit and has ticks at round values, every point lies inside
// the frame, and the same chart gives the same text.
package chart
