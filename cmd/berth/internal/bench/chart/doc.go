// Package chart draws lines over two axes as SVG: every point lies inside the frame, and the
// same chart always gives the same text.
//
//	Chart{Lines} ──▶ axes: range, ticks ──▶ template ──▶ SVG
//
// Each axis names its unit and has evenly spaced or round ticks. The drawing fits light and
// dark documents, because it uses the reader's colors and fonts and embeds nothing.
package chart
