// Package chart draws lines over two axes as SVG, for light and dark documents: it uses
// the reader's colors and fonts and embeds nothing.
//
//	Chart{Lines} ──▶ axes: range, ticks ──▶ template ──▶ SVG
//
// Each axis names its unit and has ticks at round values, every point lies inside
// the frame, and the same chart gives the same text.
package chart
