package chart

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// volumeAt returns the volume that a pod mounts at a directory.
func volumeAt(t *testing.T, template corev1.PodTemplateSpec, dir string) (corev1.Volume, corev1.VolumeMount) {
	t.Helper()
	mounts := template.Spec.Containers[0].VolumeMounts
	i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir })
	if i < 0 {
		t.Fatalf("%s mounts nothing at %s", template.Spec.Containers[0].Name, dir)
	}
	volumes := template.Spec.Volumes
	j := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == mounts[i].Name })
	if j < 0 {
		t.Fatalf("%s has no volume %s", template.Spec.Containers[0].Name, mounts[i].Name)
	}
	return volumes[j], mounts[i]
}

// TestSecretMounts checks that the files that flags and variables name come from the
// secrets of the values, in a directory that Kubernetes updates, and that only the user and
// the group of the process may read them.
func TestSecretMounts(t *testing.T) {
	services := []string{"berth-registry", "berth-executor-state", "berth-assigner", "berth-gateway"}
	for _, c := range []struct {
		set, pod, secret, dir string
		flags                 map[string]string // the file of each flag
	}{
		{"testdata/tls.yaml", "", "", "/etc/berth/tls", map[string]string{"tls-cert": "tls.crt", "tls-key": "tls.key",
			"tls-ca": "ca.crt"}},
		{"testdata/tls.yaml", "", "etcd-client", "/etc/berth/etcd-tls", map[string]string{"etcd-cert": "tls.crt",
			"etcd-key": "tls.key", "etcd-ca": "ca.crt"}},
		{"testdata/tls.yaml", "", "etcd-password", "/etc/berth/etcd-password",
			map[string]string{"etcd-password-file": "password"}},
		{"testdata/tls.yaml", "", "berth-access", "/etc/berth/access", map[string]string{"access": "access.yaml"}},
		{"testdata/own-certificates.yaml", "berth-registry", "registry-tls", "/etc/berth/tls", nil},
		{"testdata/own-certificates.yaml", "berth-executor-state", "executor-state-tls", "/etc/berth/tls", nil},
		{"testdata/own-certificates.yaml", "berth-assigner", "assigner-tls", "/etc/berth/tls", nil},
		{"testdata/own-certificates.yaml", "berth-gateway", "gateway-tls", "/etc/berth/tls", nil},
		{"testdata/own-certificates.yaml", "berth-agent", "agents-tls", "/etc/berth/tls",
			map[string]string{"tls-cert": "tls.crt", "tls-key": "tls.key", "tls-ca": "ca.crt"}},
		{"testdata/own-certificates.yaml", "", "berth-access", "/etc/berth/access",
			map[string]string{"access": "access.yaml"}},
		{"testdata/external-ca.yaml", "", "etcd-ca", "/etc/berth/etcd", nil},
	} {
		pods := decoded(t, c.set).pods()
		names := services
		if c.pod != "" {
			names = []string{c.pod}
		}
		for _, name := range names {
			template := pods[name]
			volume, mount := volumeAt(t, template, c.dir)
			secret := c.secret
			if secret == "" {
				secret = name + "-tls"
			}
			if volume.Secret == nil || volume.Secret.SecretName != secret || !mount.ReadOnly || mount.SubPath != "" {
				t.Errorf("%s: %s has no secret %s at %s", c.set, name, secret, c.dir)
				continue
			}
			given := flags(t, template.Spec.Containers[0])
			for flag, file := range c.flags {
				if given[flag] != c.dir+"/"+file {
					t.Errorf("%s: %s reads %s from %s", c.set, name, flag, given[flag])
				}
			}
			if c.secret == "etcd-ca" {
				want := corev1.EnvVar{Name: "SSL_CERT_DIR", Value: c.dir}
				if !slices.Contains(template.Spec.Containers[0].Env, want) {
					t.Errorf("%s does not look for authorities in %s", name, c.dir)
				}
				continue
			}
			if mode := *volume.Secret.DefaultMode; mode != 0o440 ||
				*template.Spec.SecurityContext.FSGroup != *template.Spec.SecurityContext.RunAsGroup {
				t.Errorf("%s: the files in %s have the mode %o", name, c.dir, mode)
			}
		}
	}
}

// TestWorkersCannotReadKey checks that workers with users of their own cannot read the
// certificate of their agent: it belongs to root, and to no other group.
func TestWorkersCannotReadKey(t *testing.T) {
	values := readValues(t, "testdata/own-certificates.yaml")
	values["agent"].(map[string]any)["workerUids"] = "200000-200999"
	template := decodedValues(t, "users", values).pods()["berth-agent"]
	volume, _ := volumeAt(t, template, "/etc/berth/tls")
	if *volume.Secret.DefaultMode != 0o400 || template.Spec.SecurityContext.FSGroup != nil {
		t.Errorf("mode %o, group %v", *volume.Secret.DefaultMode, template.Spec.SecurityContext.FSGroup)
	}
	template = decoded(t, "testdata/tls.yaml").pods()["berth-agent"]
	volume, _ = volumeAt(t, template, "/etc/berth/tls")
	if group, has := volume.CSI.VolumeAttributes["csi.cert-manager.io/fs-group"]; has ||
		template.Spec.SecurityContext.FSGroup != nil {
		t.Errorf("the group %s may read the certificate", group)
	}
	template = decoded(t, "testdata/issuer.yaml").pods()["berth-agent"]
	volume, _ = volumeAt(t, template, "/etc/berth/tls")
	if group := volume.CSI.VolumeAttributes["csi.cert-manager.io/fs-group"]; group != "65532" ||
		*template.Spec.SecurityContext.RunAsGroup != 65532 {
		t.Errorf("an agent that is not root reads its certificate as a member of the group %q", group)
	}
}

// TestAuthoritiesOfIssuers checks that every process that reads the access file can read the
// authorities of its issuers, in a directory that Kubernetes updates.
func TestAuthoritiesOfIssuers(t *testing.T) {
	for value, set := range map[string]string{"caConfigMapName": "testdata/tls.yaml",
		"caSecretName": "testdata/own-certificates.yaml"} {
		values := readValues(t, set)
		values["access"].(map[string]any)[value] = "issuers-ca"
		r := decodedValues(t, value, values)
		for _, name := range []string{"berth-registry", "berth-executor-state", "berth-assigner", "berth-gateway"} {
			volume, mount := volumeAt(t, r.pods()[name], "/etc/berth/issuers")
			named := volume.ConfigMap != nil && volume.ConfigMap.Name == "issuers-ca" ||
				volume.Secret != nil && volume.Secret.SecretName == "issuers-ca"
			if !named || (volume.Secret != nil) != (value == "caSecretName") || !mount.ReadOnly || mount.SubPath != "" {
				t.Errorf("%s: %s mounts %+v, %+v", value, name, volume, mount)
			}
		}
		secret, has := find[*corev1.Secret](r, "berth-access")
		if has && strings.Contains(secret.StringData["access.yaml"], value) {
			t.Errorf("%s is in the access file", value)
		}
	}
}

// TestAccessContent checks that the access file in the values is a Secret.
func TestAccessContent(t *testing.T) {
	r := decoded(t, "testdata/tls.yaml")
	text := get[*corev1.Secret](t, r, "berth-access").StringData["access.yaml"]
	if !strings.Contains(text, "storedBytes: 536870912\n") || !strings.Contains(text, "name: alice\n") {
		t.Errorf("the access file is:\n%s", text)
	}
}
