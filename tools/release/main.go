// Command release makes the files of a release from its programs.
//
//	release [-image ARCH] BUILD OUT
//
// OUT has the programs and their SBOMs. BUILD has the output of the other earlier steps of
// `make release`: the man pages and completions, and the licenses of the dependencies. The
// working directory is the root of the repository. The command adds to OUT:
//
//   - an archive for each operating system and architecture
//   - the packages of deploy/packages, as .deb and .rpm
//   - a container image for all architectures
//   - the chart
//   - the Go modules, as the files of a module proxy
//
// With -image, it writes only the container image of one architecture to standard output,
// in the format that every version of `docker load` reads.
//
// The environment has VERSION, COMMIT, and SOURCE_DATE_EPOCH, the time of the commit. The
// same input gives the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Metadata of all packages and images.
const (
	homepage = "https://berth.dev"
	license  = "Apache-2.0"
)

// release describes the release that the command makes.
type release struct {
	version, commit string
	date            time.Time
	// build and out are the absolute paths of the arguments.
	build, out string
}

// platforms are the operating systems and architectures with an archive.
var platforms = []struct{ os, arch string }{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
}

func main() {
	image := flag.String("image", "", "write only the container image of an architecture, to standard output")
	flag.Parse()
	if err := run(*image, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(image string, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: release [-image ARCH] BUILD OUT")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r := release{version: os.Getenv("VERSION"), commit: os.Getenv("COMMIT"), date: time.Unix(seconds, 0).UTC()}
	if r.version == "" {
		return errors.New("VERSION: must be set")
	}
	for to, from := range map[*string]string{&r.build: args[0], &r.out: args[1]} {
		if *to, err = filepath.Abs(from); err != nil {
			return err
		}
	}
	if image != "" {
		return r.dockerArchive(os.Stdout, image)
	}
	for _, make := range []func() error{r.archives, r.packages, r.imageArchive, r.chart, r.modules} {
		if err := make(); err != nil {
			return err
		}
	}
	return nil
}

// archives stages the files of each platform in BUILD/OS-ARCH, and writes the archives.
func (r release) archives() error {
	for _, p := range platforms {
		dir := filepath.Join(r.build, p.os+"-"+p.arch)
		suffix := "-" + p.os + "-" + p.arch
		files := map[string]string{
			r.program("berth" + suffix):               "berth",
			r.program("berth" + suffix + ".cdx.json"): "berth.cdx.json",
			r.in("completions/*"):                     "completions/",
			r.in("man-" + p.os + "/*"):                "man/",
			r.in("THIRD_PARTY_LICENSES"):              "THIRD_PARTY_LICENSES",
			"LICENSE":                                 "LICENSE",
			"CHANGELOG.md":                            "CHANGELOG.md",
		}
		if p.os == "linux" {
			files[r.program("berth-agent"+suffix)] = "berth-agent"
			files[r.program("berth-agent"+suffix+".cdx.json")] = "berth-agent.cdx.json"
			files[r.in("man-agent/*")] = "man/"
			files["deploy/systemd/*"] = "systemd/"
		}
		if err := stage(dir, files); err != nil {
			return err
		}
		name := "berth-" + r.version + suffix
		if err := r.tarGz(filepath.Join(r.out, name+".tar.gz"), name, dir); err != nil {
			return err
		}
	}
	return nil
}

// in returns the path of a file of BUILD.
func (r release) in(name string) string { return filepath.Join(r.build, filepath.FromSlash(name)) }

// program returns the path of a program or its SBOM, which are files of the release too.
func (r release) program(name string) string { return filepath.Join(r.out, name) }

// chart writes the chart as `helm package` does.
func (r release) chart() error {
	return r.tarGz(filepath.Join(r.out, "berth-"+r.version+".tgz"), "berth", filepath.Join("deploy", "helm", "berth"))
}

// stage copies files to a new directory. The source is a pattern that must match, and a
// destination that ends with a slash is a directory. Programs get the mode 0755, other
// files 0644, and man pages are compressed.
func stage(dir string, files map[string]string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for pattern, to := range files {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s: no such file: %w", pattern, errors.Join(err, os.ErrNotExist))
		}
		for _, from := range found {
			target := filepath.Join(dir, filepath.FromSlash(to))
			if strings.HasSuffix(to, "/") {
				target = filepath.Join(target, filepath.Base(from))
			}
			if err := copyFile(target, from); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(target, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if strings.HasPrefix(filepath.Base(filepath.Dir(from)), "man-") {
		target += ".gz"
		if content, err = compress(content); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(target, content, mode(info)); err != nil {
		return err
	}
	return os.Chmod(target, mode(info)) // whatever the umask is
}

// mode returns the mode that a file of a release has.
func mode(info os.FileInfo) os.FileMode {
	if info.IsDir() || info.Mode()&0o100 != 0 {
		return 0o755
	}
	return 0o644
}
