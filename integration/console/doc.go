// Package console plays the console in a real browser against a cluster of real processes
// that fail meanwhile. It needs Node, Chromium and the packages in the directory console of
// the repository, so it runs only with the flag -browser: make console-test.
//
// The tests start the processes. The plays, in console/test, drive the browser. They call the
// control server of this package to kill, freeze and continue processes.
package console
