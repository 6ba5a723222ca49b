// Package chart draws lines over two axes as SVG, for documents that are read in
// light and in dark: colours and letters are the reader's, nothing is embedded.
//
//	Chart{Lines} ──▶ axes: range, ticks ──▶ template ──▶ SVG
//
// It promises that each axis has ticks at round values and names its unit, that
// every point lies inside the frame, and that the same chart is the same text.
package chart
