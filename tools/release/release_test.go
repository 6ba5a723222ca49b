package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/blakesmith/ar"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// released is the directory of the release under test, which `make release` made.
var released = os.Getenv("RELEASE")

func TestMain(m *testing.M) {
	if released == "" || !filepath.IsAbs(released) {
		panic("run make release and make release-test")
	}
	if err := os.Chdir("../.."); err != nil { // as for the command
		panic(err)
	}
	os.Exit(m.Run())
}

func version(t *testing.T) string { return strings.TrimSpace(string(read(t, "VERSION"))) }

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFiles checks the names of all files, and their checksums.
func TestFiles(t *testing.T) {
	v, p := version(t), strings.ReplaceAll(version(t), "-", "~")
	want := []string{
		"SHA256SUMS", "berth-" + v + ".tgz", "berth-" + v + "-image.tar", "berth-" + v + "-go-modules.tar.gz",
		"berth-docs-" + v + ".tar.gz",
		"berth-server_" + p + "_all.deb", "berth-server-" + p + "-1.noarch.rpm",
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		want = append(want, "berth-"+platform, "berth-"+platform+".cdx.json", "berth-"+v+"-"+platform+".tar.gz")
	}
	for arch, rpm := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		want = append(want, "berth-agent-linux-"+arch, "berth-agent-linux-"+arch+".cdx.json")
		for _, name := range []string{"berth", "berth-agent"} {
			want = append(want, name+"_"+p+"_"+arch+".deb", name+"-"+p+"-1."+rpm+".rpm")
		}
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(released, "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	entries, err := os.ReadDir(released)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
		if sum := sha256.Sum256(read(t, filepath.Join(released, e.Name()))); e.Name() != "SHA256SUMS" &&
			sums[e.Name()] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has another checksum than in SHA256SUMS", e.Name())
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the files are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPrograms checks that each program is static and for its platform.
func TestPrograms(t *testing.T) {
	for _, p := range platforms {
		info, err := buildinfo.ReadFile(filepath.Join(released, "berth-"+p.os+"-"+p.arch))
		must(t, err)
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if settings["GOOS"] != p.os || settings["GOARCH"] != p.arch || settings["CGO_ENABLED"] != "0" ||
			settings["-trimpath"] != "true" {
			t.Errorf("berth for %s on %s: %v", p.os, p.arch, settings)
		}
	}
}

// TestReproducible makes everything again from the same programs and compares the bytes.
func TestReproducible(t *testing.T) {
	build, out := t.TempDir(), t.TempDir()
	staged := filepath.Join(released, "..", "stage")
	for _, dir := range []string{"completions", "man-linux", "man-darwin", "man-agent"} {
		must(t, os.CopyFS(filepath.Join(build, dir), os.DirFS(filepath.Join(staged, dir))))
	}
	const licenses = "THIRD_PARTY_LICENSES"
	must(t, os.WriteFile(filepath.Join(build, licenses), read(t, filepath.Join(staged, licenses)), 0o600))
	var made []string
	entries, err := os.ReadDir(released)
	must(t, err)
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(strings.TrimSuffix(name, ".cdx.json"), "64") {
			must(t, os.Symlink(filepath.Join(released, name), filepath.Join(out, name)))
		} else if name != "SHA256SUMS" && !strings.HasPrefix(name, "berth-docs-") { // which make adds
			made = append(made, name)
		}
	}
	files := tarFiles(t, gunzip(t, read(t, filepath.Join(released, "berth-"+version(t)+".tgz"))))
	index := unpackImage(t)
	manifest, err := index.IndexManifest()
	must(t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	t.Setenv("SOURCE_DATE_EPOCH", strconv.FormatInt(files["berth/Chart.yaml"].header.ModTime.Unix(), 10))
	t.Setenv("VERSION", version(t))
	t.Setenv("COMMIT", config.Config.Labels["org.opencontainers.image.revision"])
	must(t, run("", []string{build, out}))
	for _, name := range made {
		if !bytes.Equal(read(t, filepath.Join(out, name)), read(t, filepath.Join(released, name))) {
			t.Errorf("%s has other bytes", name)
		}
	}
}

type file struct {
	header  *tar.Header
	content []byte
}

// tarFiles returns the files of an archive by their names.
func tarFiles(t *testing.T, content []byte) map[string]file {
	t.Helper()
	files := map[string]file{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		body, err := io.ReadAll(r)
		must(t, err)
		if header.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(header.Name, ".")] = file{header, body}
		}
	}
}

func gunzip(t *testing.T, content []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(content))
	must(t, err)
	content, err = io.ReadAll(r)
	must(t, err)
	return content
}

// deb returns the files of a package, and those of its control archive.
func deb(t *testing.T, name string) (data, control map[string]file) {
	t.Helper()
	for r := ar.NewReader(bytes.NewReader(read(t, filepath.Join(released, name)))); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return data, control
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		switch strings.TrimSuffix(header.Name, "/") {
		case "control.tar.gz":
			control = tarFiles(t, gunzip(t, content))
		case "data.tar.gz":
			data = tarFiles(t, gunzip(t, content))
		}
	}
}

// packaged has the files of each package apart from man pages, and their modes. RPM
// packages have some files elsewhere.
var packaged = map[string]map[string]int64{
	"berth": {
		"/usr/bin/berth": 0o755, "/usr/share/bash-completion/completions/berth": 0o644,
		"/usr/share/zsh/vendor-completions/_berth": 0o644, "/usr/share/fish/vendor_completions.d/berth.fish": 0o644,
		"/usr/share/doc/berth/copyright": 0o644, "/usr/share/doc/berth/THIRD_PARTY_LICENSES": 0o644,
		"/usr/share/doc/berth/CHANGELOG.md": 0o644, "/usr/share/doc/berth/berth.cdx.json": 0o644,
	},
	"berth-agent": {
		"/usr/bin/berth-agent": 0o755, "/usr/lib/systemd/system/berth-agent.service": 0o644,
		"/usr/lib/sysusers.d/berth-agent.conf": 0o644, "/etc/berth/agent.env": 0o640,
		"/usr/share/doc/berth-agent/copyright": 0o644, "/usr/share/doc/berth-agent/THIRD_PARTY_LICENSES": 0o644,
		"/usr/share/doc/berth-agent/CHANGELOG.md": 0o644, "/usr/share/doc/berth-agent/berth-agent.cdx.json": 0o644,
		"/usr/share/doc/berth-agent/without-worker-uids.conf": 0o644,
	},
	"berth-server": {
		"/usr/lib/systemd/system/berth-registry.service": 0o644, "/usr/lib/systemd/system/berth-executor-state.service": 0o644,
		"/usr/lib/systemd/system/berth-assigner.service": 0o644, "/usr/lib/systemd/system/berth-gateway.service": 0o644,
		"/usr/lib/sysusers.d/berth-server.conf": 0o644, "/etc/berth/registry.env": 0o640,
		"/etc/berth/executor-state.env": 0o640, "/etc/berth/assigner.env": 0o640, "/etc/berth/gateway.env": 0o640,
		"/usr/share/doc/berth-server/copyright": 0o644, "/usr/share/doc/berth-server/CHANGELOG.md": 0o644,
	},
}

// manPage is a page that a package must have.
var manPage = map[string]string{
	"berth": "/usr/share/man/man1/berth-apply.1.gz", "berth-agent": "/usr/share/man/man8/berth-agent.8.gz",
}

// TestDebs checks the files, modes, scripts, configuration files and versions of the
// Debian packages.
func TestDebs(t *testing.T) {
	v := strings.ReplaceAll(version(t), "-", "~")
	for name, want := range packaged {
		arches := []string{"amd64", "arm64"}
		if name == "berth-server" {
			arches = []string{"all"}
		}
		for _, arch := range arches {
			data, control := deb(t, name+"_"+v+"_"+arch+".deb")
			got, pages := map[string]int64{}, 0
			var options string
			for _, path := range slices.Sorted(maps.Keys(data)) {
				header := data[path].header
				if header.Uid != 0 || header.Gid != 0 {
					t.Errorf("%s: root does not own %s", name, path)
				}
				if strings.HasPrefix(path, "/etc/") {
					options += path + "\n"
				}
				if strings.HasPrefix(path, "/usr/share/man/") {
					pages++
					continue
				}
				got[path] = header.Mode
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s has the files %v, want %v", name, got, want)
			}
			if _, found := data[manPage[name]]; !found && manPage[name] != "" {
				t.Errorf("%s has no %s", name, manPage[name])
			}
			if string(control["/conffiles"].content) != options {
				t.Errorf("%s: conffiles %q, want %q", name, control["/conffiles"].content, options)
			}
			text := string(control["/control"].content)
			for _, field := range []string{"Version: " + v + "\n", "Architecture: " + arch + "\n", "Package: " + name + "\n"} {
				if !strings.Contains(text, field) {
					t.Errorf("%s: the control file has no %q", name, field)
				}
			}
			for _, script := range []string{"postinst", "prerm", "postrm"} {
				if f, found := control["/"+script]; found != (name != "berth") || found && f.header.Mode != 0o755 {
					t.Errorf("%s: %s: %+v", name, script, f.header)
				}
			}
			for path, f := range data {
				if strings.HasSuffix(path, ".service") && !strings.Contains(string(f.content), "\nExecStart=/usr/bin/berth") {
					t.Errorf("%s: %s does not run the program of the package", name, path)
				}
			}
			program := want["/usr/bin/"+name] != 0
			if program && !bytes.Equal(data["/usr/bin/"+name].content, read(t, filepath.Join(released, name+"-linux-"+arch))) {
				t.Errorf("%s: the program is not %s-linux-%s", name, name, arch)
			}
		}
	}
	err := exec.Command("dpkg", "--compare-versions", "0.1.0~dev", "lt", "0.1.0").Run()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Error("0.1.0~dev is not older than 0.1.0")
	}
}

// TestRPMs checks the packages with rpm, if it is installed.
func TestRPMs(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("rpm is not installed")
	}
	query := func(name string, args ...string) string {
		return command(t, "rpm", append(append([]string{"-qp", "--nosignature"}, args...), filepath.Join(released, name))...)
	}
	v := strings.ReplaceAll(version(t), "-", "~")
	for name, want := range packaged {
		arches := []string{"x86_64", "aarch64"}
		if name == "berth-server" {
			arches = []string{"noarch"}
		}
		for _, arch := range arches {
			file := name + "-" + v + "-1." + arch + ".rpm"
			got := map[string]int64{}
			for line := range strings.Lines(query(file, "--qf", "[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}\n]")) {
				fields := strings.Fields(line)
				mode, err := strconv.ParseInt(fields[1], 8, 64)
				must(t, err)
				if fields[2] != "root" {
					t.Errorf("%s: root does not own %s", file, line)
				}
				if mode&0o170000 == 0o100000 && !strings.HasPrefix(fields[0], "/usr/share/man/") {
					got[fields[0]] = mode & 0o7777
				}
			}
			wanted := map[string]int64{}
			for path, mode := range want {
				path = strings.Replace(path, "/usr/share/doc/"+name+"/copyright", "/usr/share/licenses/"+name+"/LICENSE", 1)
				wanted[strings.Replace(path, "zsh/vendor-completions", "zsh/site-functions", 1)] = mode
			}
			if !maps.Equal(got, wanted) {
				t.Errorf("%s has the files %v, want %v", file, got, wanted)
			}
			if got := query(file, "--qf", "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST}"); got != name+" "+v+" 1 "+arch+" Apache-2.0 berth.dev" {
				t.Errorf("%s: %s", file, got)
			}
			if got := query(file, "--scripts"); strings.Contains(got, "systemd-sysusers") != (name != "berth") ||
				strings.Contains(got, "systemctl disable") != (name != "berth") {
				t.Errorf("%s: scripts %s", file, got)
			}
			for path := range strings.FieldsSeq(query(file, "-c")) {
				if path == "/etc/berth/"+strings.TrimPrefix(name, "berth-")+".env" || name == "berth-server" {
					delete(wanted, path)
				}
			}
			for path := range wanted {
				if strings.HasPrefix(path, "/etc/") {
					t.Errorf("%s: an upgrade would replace %s", file, path)
				}
			}
		}
	}
}

// TestArchives checks what the archives have in addition to the programs.
func TestArchives(t *testing.T) {
	for _, p := range platforms {
		name := "berth-" + version(t) + "-" + p.os + "-" + p.arch
		files := tarFiles(t, gunzip(t, read(t, filepath.Join(released, name+".tar.gz"))))
		want := []string{
			"berth", "berth.cdx.json", "LICENSE", "THIRD_PARTY_LICENSES", "CHANGELOG.md",
			"man/berth.1.gz", "man/berth-apply.1.gz", "completions/berth.bash", "completions/_berth", "completions/berth.fish",
		}
		linux := []string{
			"berth-agent", "man/berth-agent.8.gz", "man/berth-registry.1.gz", "systemd/berth-agent.service", "systemd/agent.env",
			"systemd/berth-server.sysusers",
		}
		if p.os == "linux" {
			want = append(want, linux...)
		}
		for _, file := range want {
			if _, found := files[name+"/"+file]; !found {
				t.Errorf("%s has no %s", name, file)
			}
		}
		for _, file := range linux {
			if _, found := files[name+"/"+file]; found && p.os != "linux" {
				t.Errorf("%s has %s", name, file)
			}
		}
		if !bytes.Equal(files[name+"/berth"].content, read(t, filepath.Join(released, "berth-"+p.os+"-"+p.arch))) {
			t.Errorf("%s has another berth", name)
		}
	}
}

// unpackImage returns the image of all architectures.
func unpackImage(t *testing.T) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	command(t, "tar", "-x", "-C", dir, "-f", filepath.Join(released, "berth-"+version(t)+"-image.tar"))
	outer, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := outer.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version(t) {
		t.Fatalf("the archive has the images %+v", manifest.Manifests)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	return index
}

// TestImage checks the container image of each architecture.
func TestImage(t *testing.T) {
	index := unpackImage(t)
	manifest, err := index.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 2 {
		t.Fatalf("the image has %d architectures", len(manifest.Manifests))
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		must(t, err)
		config, err := image.ConfigFile()
		must(t, err)
		if config.Architecture != m.Platform.Architecture || config.OS != "linux" || config.Config.User != "65532:65532" ||
			!slices.Equal(config.Config.Entrypoint, []string{"berth"}) || !slices.Equal(config.Config.Env, []string{"PATH=/usr/local/bin"}) ||
			config.Config.Labels["org.opencontainers.image.version"] != version(t) {
			t.Errorf("configuration of %s: %+v", m.Platform, config)
		}
		layers, err := image.Layers()
		must(t, err)
		r, err := layers[0].Uncompressed()
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		files := tarFiles(t, content)
		if len(files) != 4 || len(layers) != 1 {
			t.Errorf("the image has %d layers with %d files", len(layers), len(files))
		}
		if !bytes.Equal(files["usr/local/bin/berth"].content, read(t, filepath.Join(released, "berth-linux-"+config.Architecture))) {
			t.Error("the image has another berth")
		}
		if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"].content, []byte("BEGIN CERTIFICATE")); n < 50 {
			t.Errorf("the image has %d certificate authorities", n)
		}
	}
}

// TestChart checks that the archive of the chart has the files of the chart, and that its
// versions are those of the release.
func TestChart(t *testing.T) {
	files := tarFiles(t, gunzip(t, read(t, filepath.Join(released, "berth-"+version(t)+".tgz"))))
	must(t, filepath.WalkDir("deploy/helm/berth", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, "deploy/helm/")
		if !bytes.Equal(files[name].content, read(t, path)) {
			t.Errorf("%s is not %s", name, path)
		}
		delete(files, name)
		return nil
	}))
	for name := range files {
		t.Errorf("unknown file %s", name)
	}
	chart := string(read(t, "deploy/helm/berth/Chart.yaml"))
	for _, line := range []string{"\nversion: " + version(t) + "\n", "\nappVersion: " + version(t) + "\n"} {
		if !strings.Contains(chart, line) {
			t.Errorf("the chart has no line %q", line)
		}
	}
}

// TestGoInstall installs the programs as `go install` does outside the repository, from the
// published modules.
func TestGoInstall(t *testing.T) {
	proxy, bin := t.TempDir(), t.TempDir()
	command(t, "tar", "-x", "-C", proxy, "-f", filepath.Join(released, "berth-"+version(t)+"-go-modules.tar.gz"))
	machine := strings.Fields(command(t, "go", "env", "GOMODCACHE", "GOPROXY"))
	for _, program := range []string{"berth", "berth-agent"} {
		install := exec.Command("go", "install", "berth.dev/cmd/"+program+"@v"+version(t))
		install.Dir = t.TempDir()
		install.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GOTOOLCHAIN=local", "GOBIN="+bin,
			// The machine's cache has all other modules, because this repository needs them too.
			"GOMODCACHE="+t.TempDir(), "GONOSUMDB=berth.dev", "CGO_ENABLED=0",
			"GOPROXY=file://"+proxy+",file://"+machine[0]+"/cache/download,"+machine[1])
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out := command(t, filepath.Join(bin, "berth"), "version"); !strings.HasPrefix(out, "berth "+version(t)+"\n") {
		t.Errorf("berth version prints %q", out)
	}
	if out := command(t, filepath.Join(bin, "berth-agent"), "--help"); !strings.Contains(out, "--worker-uids") {
		t.Errorf("berth-agent --help prints %q", out)
	}
}

// TestCompletions completes a word in each shell that is installed.
func TestCompletions(t *testing.T) {
	dir := filepath.Join(released, "..", "stage", "linux-amd64")
	dir, err := filepath.Abs(dir)
	must(t, err)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script, err := filepath.Abs("tools/release/testdata/complete.zsh")
	must(t, err)
	for shell, args := range map[string][]string{
		"bash": {"--norc", "-c", `source /usr/share/bash-completion/bash_completion; source "$0"; COMP_WORDS=(berth get ex); COMP_CWORD=2; COMP_LINE="berth get ex"; COMP_POINT=12
			__start_berth berth; echo "${COMPREPLY[@]}"`, filepath.Join(dir, "completions", "berth.bash")},
		"fish": {"--no-config", "-c", `source $argv[1]; complete -C "berth get ex"`, filepath.Join(dir, "completions", "berth.fish")},
		"zsh":  {"-f", script, filepath.Join(dir, "completions")},
	} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("the shell is not installed")
			}
			if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); err != nil && shell == "bash" {
				t.Skip("the functions of bash-completion are not installed")
			}
			if out := command(t, shell, args...); !strings.Contains(out, "executors") {
				t.Errorf("the completion of `berth get ex` is %q", out)
			}
		})
	}
}

// TestHost boots a minimal Debian with systemd in a container, installs the packages and
// starts everything. It needs root, systemd-nspawn and debootstrap, and the first run
// downloads the packages of Debian into bin/rootfs.
func TestHost(t *testing.T) {
	for _, program := range []string{"systemd-nspawn", "debootstrap"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			t.Skipf("%s is not installed, or the test does not run as root", program)
		}
	}
	base := filepath.Join(released, "..", "rootfs")
	if _, err := os.Stat(base); err != nil {
		half := base + ".new"
		must(t, os.RemoveAll(half))
		command(t, "debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,procps,man-db", "bookworm", half)
		must(t, os.Rename(half, base))
	}
	root := filepath.Join(t.TempDir(), "root")
	command(t, "cp", "-a", "--reflink=auto", base, root)
	v := strings.ReplaceAll(version(t), "-", "~")
	arch := strings.TrimSpace(command(t, "dpkg", "--print-architecture"))
	for from, to := range map[string]string{
		"tools/release/testdata/host.sh":                          "root/host.sh",
		"tools/release/testdata/host-check.service":               "etc/systemd/system/host-check.service",
		filepath.Join(released, "berth_"+v+"_"+arch+".deb"):       "root/berth_.deb",
		filepath.Join(released, "berth-agent_"+v+"_"+arch+".deb"): "root/berth-agent_.deb",
		filepath.Join(released, "berth-server_"+v+"_all.deb"):     "root/berth-server_.deb",
	} {
		command(t, "cp", "-p", from, filepath.Join(root, to))
	}
	// An image is built without a running systemd.
	command(t, "chroot", root, "sh", "-c", "dpkg -i /root/*.deb && systemctl enable berth-agent berth-registry && "+
		"dpkg -P berth-agent berth-server berth")
	command(t, "systemctl", "--root="+root, "enable", "host-check.service")
	must(t, os.WriteFile(filepath.Join(root, "etc/machine-id"), nil, 0o444))
	boot := exec.CommandContext(t.Context(), "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
		"--private-network", "--directory="+root)
	boot.WaitDelay = 10 * time.Second
	console, err := boot.CombinedOutput()
	result, _ := os.ReadFile(filepath.Join(root, "root/result"))
	t.Logf("%s", result)
	if !strings.Contains(string(result), "all checks passed") {
		t.Errorf("%v\n%s", err, console)
	}
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, stderr.String())
	}
	return string(out)
}
