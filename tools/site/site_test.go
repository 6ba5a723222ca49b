// Package site guarantees that the site of the documentation is complete: `make site` builds
// it with Hugo, then runs this test on the result.
package site

import (
	"flag"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

var dir = flag.String("site", "../../bin/site", "directory of the site")

// page is what the test checks of a page.
type page struct {
	ids, links, loads []string
	title, policy     string
	// inline counts scripts, styles and handlers in the page. The policy forbids them.
	inline int
}

func parse(t *testing.T, name string) page {
	t.Helper()
	file, err := os.Open(filepath.Join(*dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	root, err := html.Parse(file)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var p page
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		attributes := map[string]string{}
		for _, a := range n.Attr {
			attributes[a.Key] = a.Val
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				p.inline++
			}
		}
		if id := attributes["id"]; id != "" {
			p.ids = append(p.ids, id)
		}
		switch n.Data {
		case "a":
			p.links = append(p.links, attributes["href"])
		case "link":
			p.loads = append(p.loads, attributes["href"])
		case "script", "img":
			p.loads = append(p.loads, attributes["src"])
			if n.Data == "script" && n.FirstChild != nil {
				p.inline++
			}
		case "style":
			p.inline++
		case "title":
			p.title = n.FirstChild.Data
		case "meta":
			if attributes["http-equiv"] == "Content-Security-Policy" {
				p.policy = attributes["content"]
			}
		}
	}
	return p
}

// TestSite checks that each document has a page, that every link of a page has a target, and
// that no page loads anything from another host.
func TestSite(t *testing.T) {
	pages := map[string]page{}
	if err := fs.WalkDir(os.DirFS(*dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".html" {
			pages[name] = parse(t, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	documents := 0
	if err := fs.WalkDir(os.DirFS("../.."), "docs", func(name string, _ fs.DirEntry, err error) error {
		if base, found := strings.CutSuffix(name, ".md"); found {
			documents++
			if folder, index := strings.CutSuffix(base, "README"); index {
				base = folder + "index"
			}
			if _, found := pages[base+".html"]; !found {
				t.Errorf("%s has no page: an index needs its mount in hugo.toml", name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if documents < 50 {
		t.Fatalf("only %d documents found", documents)
	}
	if index, err := os.ReadFile(filepath.Join(*dir, "search-index.js")); err != nil || !strings.Contains(string(index), "sameShape") {
		t.Errorf("the index of the search has no text: %v", err)
	}

	for name, p := range pages {
		if p.title == "" || !strings.HasPrefix(p.policy, "default-src 'none'; script-src 'self'; style-src 'self'; ") {
			t.Errorf("%s: title %q, policy %q", name, p.title, p.policy)
		}
		if p.inline > 0 {
			t.Errorf("%s has %d inline scripts or styles", name, p.inline)
		}
		slices.Sort(p.ids)
		if len(slices.Compact(slices.Clone(p.ids))) != len(p.ids) {
			t.Errorf("%s has an ID twice: %q", name, p.ids)
		}
		for _, load := range p.loads {
			if target, _ := follow(t, name, load); target == "" {
				t.Errorf("%s loads %q from another host", name, load)
			}
		}
		for _, link := range p.links {
			target, anchor := follow(t, name, link)
			if target == "" || anchor == "" {
				continue
			}
			if there, found := pages[target]; found && !slices.Contains(there.ids, anchor) {
				t.Errorf("%s: %s has no anchor #%s", name, target, anchor)
			}
		}
	}
	// The navigation has every page but the decisions and the runbooks.
	for name := range pages {
		section := strings.Split(name, "/")
		if len(section) != 3 || section[1] == "adr" {
			continue
		}
		if !slices.ContainsFunc(pages["docs/index.html"].links, func(link string) bool {
			target, _ := follow(t, "docs/index.html", link)
			return target == name
		}) {
			t.Errorf("the navigation does not have %s", name)
		}
	}
}

// follow returns the file and the anchor of a link. The file is empty if another host
// serves it.
func follow(t *testing.T, name, link string) (target, anchor string) {
	t.Helper()
	to, err := url.Parse(link)
	if err != nil || link == "" {
		t.Errorf("%s: the link %q: %v", name, link, err)
		return "", ""
	}
	if to.IsAbs() || to.Host != "" {
		if to.Scheme != "https" && to.Scheme != "http" || to.Host == "" {
			t.Errorf("%s: the link %q is not a URL of the web", name, link)
		}
		return "", ""
	}
	target = name
	if to.Path != "" {
		target = path.Join(path.Dir(name), to.Path)
	}
	if info, err := os.Stat(filepath.Join(*dir, target)); err != nil || info.IsDir() {
		t.Errorf("%s: the target of %q does not exist", name, link)
	}
	return target, to.Fragment
}
