package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, handler http.HandlerFunc, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, http.NoBody)
	r.Header = header
	w := httptest.NewRecorder()
	handler(w, r)
	return w
}

func asset(w http.ResponseWriter, r *http.Request) {
	if !Asset(w, r) {
		http.NotFound(w, r)
	}
}

// The first view may have at most 300 KB, with everything that the page names.
func TestThePageNamesItsAssets(t *testing.T) {
	compressed := http.Header{"Accept-Encoding": {"gzip, br"}}
	page := get(t, Page(""), "/", http.Header{})
	if page.Code != 200 || page.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
		page.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("the page: %d %v", page.Code, page.Header())
	}
	names := regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(names) != 3 {
		t.Fatalf("the page names %v; a style, a script and an icon are expected", names)
	}
	size := get(t, Page(""), "/", compressed).Body.Len()
	for _, name := range names {
		w := get(t, asset, name[1], compressed)
		size += w.Body.Len()
		if w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Content-Type") == "" ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name[1], w.Code, w.Header())
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if plain := get(t, asset, name[1], http.Header{}).Body.String(); plain != string(text) {
			t.Errorf("%s: the compressed content differs from the plain one", name[1])
		}
	}
	if size > 300_000 {
		t.Errorf("the first view has %d bytes", size)
	}
}

func TestThePolicyAllowsOnlyOwnFiles(t *testing.T) {
	header := get(t, Page(""), "/jobs", http.Header{}).Header()
	for part := range strings.SplitSeq(header.Get("Content-Security-Policy"), "; ") {
		for _, source := range strings.Fields(part)[1:] {
			if source != "'none'" && source != "'self'" && source != "'script'" {
				t.Errorf("the policy allows %s in %q", source, part)
			}
		}
	}
}

func TestAnUnchangedFileIsNotSentAgain(t *testing.T) {
	tag := get(t, Page(""), "/", http.Header{}).Header().Get("ETag")
	w := get(t, Page(""), "/", http.Header{"If-None-Match": {tag}})
	if w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestOnlyEmbeddedFilesAreServed(t *testing.T) {
	for _, path := range []string{"/assets/", "/assets/none.js", "/assets/../index.html", "/dist/index.html"} {
		if w := get(t, asset, path, http.Header{}); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
