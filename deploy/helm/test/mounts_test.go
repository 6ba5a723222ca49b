package chart

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSecretMounts checks that the files that flags and variables name exist below a
// mount, come from the secret of the values, and are readable only by the group of the
// process.
func TestSecretMounts(t *testing.T) {
	for _, c := range []struct{ set, secret, dir string }{
		{"testdata/external-tls.yaml", "berth-tls", "/etc/berth/tls"},
		{"testdata/external-ca.yaml", "etcd-ca", "/etc/berth/etcd"},
	} {
		for name, template := range decoded(t, c.set).pods() {
			container := template.Spec.Containers[0]
			i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == c.dir })
			if i < 0 {
				t.Errorf("%s: %s mounts nothing at %s", c.set, name, c.dir)
				continue
			}
			mount := container.VolumeMounts[i]
			j := slices.IndexFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			if j < 0 || template.Spec.Volumes[j].Secret == nil || template.Spec.Volumes[j].Secret.SecretName != c.secret ||
				!mount.ReadOnly {
				t.Errorf("%s: %s has no secret %s at %s", c.set, name, c.secret, c.dir)
				continue
			}
			given := flags(t, container)
			switch c.secret {
			case "berth-tls":
				if given["tls-cert"] != c.dir+"/tls.crt" || given["tls-key"] != c.dir+"/tls.key" ||
					given["tls-ca"] != c.dir+"/ca.crt" {
					t.Errorf("%s looks for %s, %s and %s", name, given["tls-cert"], given["tls-key"], given["tls-ca"])
				}
				if mode := *template.Spec.Volumes[j].Secret.DefaultMode; mode != 0o440 ||
					*template.Spec.SecurityContext.FSGroup != *template.Spec.SecurityContext.RunAsGroup {
					t.Errorf("%s: the key has the mode %o", name, mode)
				}
			case "etcd-ca":
				if !slices.Contains(container.Env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: c.dir}) {
					t.Errorf("%s does not look for authorities in %s: %v", name, c.dir, container.Env)
				}
				if given["tls-cert"] != "" {
					t.Errorf("%s has TLS of its own", name)
				}
			}
		}
	}
}
