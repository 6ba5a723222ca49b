// Package console serves the console: a web page that shows the state of the cluster and
// carries out the actions of operators. The page calls only the public API of the gateway
// that served it, with the roles of its caller, so the console can do nothing that the caller
// cannot do without it.
//
// The files in dist are built from the directory console of the repository (make console) and
// embedded. Nothing is read from disk or from another host at run time.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// policy allows the page only its own files and calls to its own gateway. No other page may
// show the console in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Views are the first parts of the paths that show a view of the page, in addition to "/".
var Views = []string{"queues", "jobs", "executors", "usage", "tenants", "audit", "findings", "search"}

// types has the content types by the extensions of the files.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is an embedded file as it is sent.
type file struct {
	plain, compressed []byte
	contentType, etag string
}

// files has the embedded files by the path in their URLs.
var files = sync.OnceValue(func() map[string]file {
	found := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		found[strings.TrimPrefix(name, "dist")] = newFile(name, text)
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return found
})

func newFile(name string, text []byte) file {
	sum := sha256.Sum256(text)
	return file{plain: text, compressed: compress(text), contentType: types[path.Ext(name)],
		etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

func compress(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	w.Write(text)                                           //nolint:errcheck // a buffer accepts everything
	w.Close()
	return out.Bytes()
}

// Page returns the handler of the page, for "/" and for every view. The page names its files,
// and makes its calls, below the base path of the gateway.
func Page(base string) http.HandlerFunc {
	page := files()["/index.html"]
	page = newFile("index.html", bytes.ReplaceAll(page.plain, []byte(basePlace), []byte(base)))
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		// The page names the current assets, so it must not be older than they are.
		header.Set("Cache-Control", "no-cache")
		send(w, r, page)
	}
}

// basePlace stands for the base path in the page.
const basePlace = "{{base}}"

// Asset serves a file of the page. It reports false if there is no such file. Its name
// contains its hash, so browsers may keep it.
func Asset(w http.ResponseWriter, r *http.Request) bool {
	f, ok := files()[r.URL.Path]
	if !ok {
		return false
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	send(w, r, f)
	return true
}

// send writes a file, compressed if the caller accepts that.
func send(w http.ResponseWriter, r *http.Request, f file) {
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	header.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = f.compressed
	}
	w.Write(body) //nolint:errcheck // it fails only on a closed connection
}
