package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// repository is the name of the image before somebody pushes it to a registry.
const repository = "berth"

// imageArchive writes the image of all architectures as an archive in the OCI format.
func (r release) imageArchive() error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.image(p.arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	dir := r.in("image")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	files, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The names that docker, containerd and podman give to the image.
	if err := files.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          "docker.io/library/" + repository + ":" + r.version,
		"org.opencontainers.image.ref.name": r.version,
	})); err != nil {
		return err
	}
	return create(filepath.Join(r.out, repository+"-"+r.version+"-image.tar"), func(w io.Writer) error {
		return r.tar(w, "", dir)
	})
}

// dockerArchive writes the image of one architecture in the format of `docker save`.
func (r release) dockerArchive(out io.Writer, arch string) error {
	image, err := r.image(arch)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(repository + ":" + r.version)
	if err != nil {
		return err
	}
	return tarball.Write(tag, image, out)
}

// image returns the image of an architecture. It can run every process of Berth:
// `berth registry`, `berth gateway` and so on. The program is static, so the image has no
// libraries. Without time zones, all times in logs are in UTC.
func (r release) image(arch string) (v1.Image, error) {
	content, err := r.rootFiles(arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		Env: []string{"PATH=/usr/local/bin"},
		// Kubernetes can verify that a numeric user is not root.
		User:       "65532:65532",
		Entrypoint: []string{"berth"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Berth",
			"org.opencontainers.image.url":      homepage,
			"org.opencontainers.image.licenses": license,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
		},
	}
	return mutate.ConfigFile(image, config)
}

// rootFiles returns the files of the image: the program, the licenses, the certificate
// authorities for TLS, and a directory for the data of `berth dev`.
func (r release) rootFiles(arch string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		read func() ([]byte, error)
	}{
		{"etc/", 0o755, nil},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{"usr/local/bin/berth", 0o755, reads(filepath.Join(r.out, "berth-linux-"+arch))},
		{"usr/share/", 0o755, nil},
		{"usr/share/doc/", 0o755, nil},
		{"usr/share/doc/berth/", 0o755, nil},
		{"usr/share/doc/berth/LICENSE", 0o644, reads("LICENSE")},
		{"usr/share/doc/berth/THIRD_PARTY_LICENSES", 0o644, reads(r.in("THIRD_PARTY_LICENSES"))},
	} {
		header := &tar.Header{Name: f.name, Typeflag: tar.TypeDir, Mode: f.mode, ModTime: r.date}
		var content []byte
		if f.read != nil {
			var err error
			if content, err = f.read(); err != nil {
				return nil, err
			}
			header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func reads(file string) func() ([]byte, error) {
	return func() ([]byte, error) { return os.ReadFile(file) }
}

// authorities returns the certificate authorities that Mozilla trusts, in PEM. It omits
// those that Mozilla trusts with constraints, which a PEM file cannot express.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, fmt.Errorf("the bundle of certificate authorities is empty")
	}
	return out.Bytes(), nil
}
