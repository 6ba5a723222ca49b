package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// packages writes each package of deploy/packages for each architecture.
func (r release) packages() error {
	configs, err := filepath.Abs(filepath.Join("deploy", "packages"))
	if err != nil {
		return err
	}
	if err := r.stageUnits(configs); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	defer os.Chdir(root) //nolint:errcheck // the directory exists
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		// The paths of the files in a package are relative.
		if err := os.Chdir(r.in(p.os + "-" + p.arch)); err != nil {
			return err
		}
		for _, name := range []string{"berth", "berth-agent", "berth-server"} {
			for _, format := range []string{"deb", "rpm"} {
				if err := r.pack(filepath.Join(configs, name+".yaml"), p.arch, format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// stageUnits stages what packages have in addition to the archives. The programs of
// packages are in /usr/bin; those that an operator installs by hand are in /usr/local/bin.
func (r release) stageUnits(configs string) error {
	units := r.in("units")
	err := stage(r.in("scripts"), map[string]string{
		filepath.Join(configs, "post*"): "/", filepath.Join(configs, "*.preremove"): "/",
	})
	if err == nil {
		err = stage(units, map[string]string{filepath.Join("deploy", "systemd", "*.service"): "/"})
	}
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(units, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(content), "ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes one package.
func (r release) pack(file, arch, format string) error {
	variables := map[string]string{"VERSION": r.packageVersion()}
	config, err := nfpm.ParseFileWithEnvMapping(file, func(name string) string { return variables[name] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	if info.Arch != "all" {
		info.Arch = arch
	}
	info.Version, info.VersionSchema, info.Prerelease = r.packageVersion(), "none", ""
	info.MTime, info.Umask = r.date, 0o022
	info.Maintainer, info.Vendor = "The Berth authors <maintainers@berth.dev>", "Berth"
	info.Homepage, info.License, info.Section = homepage, license, "admin"
	info.RPM.BuildHost = "berth.dev"
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	name := packager.ConventionalFileName(info)
	return create(filepath.Join(r.out, name), func(w io.Writer) error { return packager.Package(info, w) })
}

// packageVersion returns the version that dpkg and rpm sort as intended: 0.1.0~dev is
// older than 0.1.0.
func (r release) packageVersion() string { return strings.ReplaceAll(r.version, "-", "~") }
