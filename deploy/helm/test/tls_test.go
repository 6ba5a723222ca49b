package chart

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
)

// metricsName is the host name for which Prometheus checks certificates.
const metricsName = "berth-metrics." + namespace

// certificateIn returns the Certificate whose secret has a name.
func (r *release) certificateIn(secret string) (*certificate, bool) {
	for _, o := range r.objects {
		if c, ok := o.(*certificate); ok && c.Spec.SecretName == secret {
			return c, true
		}
	}
	return nil, false
}

// expanded replaces the variables of Kubernetes and of the CSI driver in a text.
func expanded(text string) string {
	return strings.NewReplacer("$(POD_NAME)", "pod-0", "$(NODE_NAME)", "node-0", "$(POD_IP)", "127.0.0.1",
		"${POD_NAME}", "pod-0").Replace(text)
}

// TestCertificates checks that cert-manager issues a certificate for each process, with the
// process's own identity, the usages of a server and a client, and the host names by which
// REST clients and Prometheus call it. REST clients may use kubectl port-forward.
func TestCertificates(t *testing.T) {
	for set, cluster := range map[string]string{"testdata/tls.yaml": "default", "testdata/issuer.yaml": "east"} {
		r := decoded(t, set)
		both := []string{"digital signature", "server auth", "client auth"}
		for pod, want := range map[string]identity.Role{
			"berth-registry": identity.Service, "berth-executor-state": identity.Service, "berth-assigner": identity.Service,
			"berth-gateway": identity.Gateway, "berth-agent": identity.Agent,
		} {
			template := r.pods()[pod]
			volume, _ := volumeAt(t, template, "/etc/berth/tls")
			given := flags(t, template.Spec.Containers[0])
			var uris, usages []string
			if pod == "berth-agent" {
				attributes := volume.CSI.VolumeAttributes
				if volume.CSI.Driver != "csi.cert-manager.io" || volume.CSI.ReadOnly == nil || !*volume.CSI.ReadOnly {
					t.Errorf("%s: the driver is %+v", set, volume.CSI)
				}
				uris = []string{expanded(attributes["csi.cert-manager.io/uri-sans"])}
				usages = strings.Split(attributes["csi.cert-manager.io/key-usages"], ",")
				checkIssuer(t, r, issuerReference{attributes["csi.cert-manager.io/issuer-name"],
					attributes["csi.cert-manager.io/issuer-kind"], attributes["csi.cert-manager.io/issuer-group"]})
			} else {
				c, found := r.certificateIn(volume.Secret.SecretName)
				if !found {
					t.Errorf("%s: there is no certificate for %s", set, pod)
					continue
				}
				uris, usages = c.Spec.URIs, c.Spec.Usages
				checkIssuer(t, r, c.Spec.IssuerRef)
				hosts := []string{metricsName}
				if pod == "berth-gateway" {
					hosts = append(strings.Split(given["public-names"], ","), "localhost", metricsName)
				}
				if !slices.Equal(c.Spec.DNSNames, hosts) {
					t.Errorf("%s: %s has the host names %q, want %q", set, pod, c.Spec.DNSNames, hosts)
				}
			}
			if len(uris) != 1 {
				t.Errorf("%s: %s has the identities %q, want one", set, pod, uris)
				continue
			}
			id, err := identity.Parse(uris[0])
			if err != nil || id.Role != want || id.Cluster != cluster {
				t.Errorf("%s: %s has the identity %v: %v", set, pod, id, err)
			}
			if pod == "berth-agent" && id.Name != expanded(given["id"]) {
				t.Errorf("%s: the agent %s has a certificate for %s", set, expanded(given["id"]), id.Name)
			}
			for _, usage := range both {
				if !slices.Contains(usages, usage) {
					t.Errorf("%s: %s has the usages %q", set, pod, usages)
				}
			}
		}
	}
}

// checkIssuer checks that an issuer is the issuer of the values, or the one of the release.
func checkIssuer(t *testing.T, r *release, by issuerReference) {
	t.Helper()
	if given, ok := r.values["tls"].(map[string]any)["issuer"].(map[string]any); ok {
		if by.Name != given["name"] || by.Kind != given["kind"] || by.Group != "cert-manager.io" {
			t.Errorf("the issuer is %+v, want %v", by, given)
		}
		return
	}
	if by.Kind != "Issuer" || by.Group != "cert-manager.io" {
		t.Errorf("the issuer is %+v", by)
	}
	signer := get[*issuer](t, r, by.Name)
	authority, found := r.certificateIn(signer.Spec.CA.SecretName)
	if !found || !authority.Spec.IsCA || authority.Spec.PrivateKey.RotationPolicy != "Never" ||
		get[*issuer](t, r, authority.Spec.IssuerRef.Name).Spec.SelfSigned == nil {
		t.Errorf("the authority is %+v", authority)
	}
}

// TestMigrationToTLS checks that the processes of a release that changes to TLS accept
// connections of both kinds. Its agents encrypt their calls at once, so that one
// replacement of each agent is enough until all connections are encrypted. The etcd for trials
// has no TLS, so the processes that call it keep --insecure.
func TestMigrationToTLS(t *testing.T) {
	values := readValues(t, "testdata/own-certificates.yaml")
	for mode, agents := range map[string]string{"allow": "prefer", "prefer": "prefer", "require": "require"} {
		values["tls"].(map[string]any)["mode"] = mode
		for name, template := range decodedValues(t, mode, values).pods() {
			want := mode
			switch name {
			case "berth-etcd":
				continue
			case "berth-agent":
				want = agents
			}
			given := flags(t, template.Spec.Containers[0])
			if _, plain := given["insecure"]; given["tls-mode"] != want || plain != (want != "require" || name != "berth-agent") {
				t.Errorf("%s: %s has --tls-mode=%s, --insecure is set: %v", mode, name, given["tls-mode"], plain)
			}
		}
	}
}

// TestRequiredTLS checks that a release whose etcd has TLS sends nothing in plain text.
func TestRequiredTLS(t *testing.T) {
	for name, template := range decoded(t, "testdata/tls.yaml").pods() {
		if _, plain := flags(t, template.Spec.Containers[0])["insecure"]; plain {
			t.Errorf("%s has --insecure", name)
		}
	}
}

// TestAuditLog checks that the audit log goes to standard output with TLS, unless the
// values turn it off.
func TestAuditLog(t *testing.T) {
	for set, want := range map[string]string{"testdata/tls.yaml": "-", "testdata/own-certificates.yaml": "",
		"testdata/agents.yaml": ""} {
		for name, template := range decoded(t, set).pods() {
			if got := flags(t, template.Spec.Containers[0])["audit-log"]; got != want && name != "berth-etcd" {
				t.Errorf("%s: %s has --audit-log=%s", set, name, got)
			}
		}
	}
}

// The bearer token of Prometheus in the access file that the tests provide.
const prometheusToken = "0123456789abcdef"

// cluster has the files of the secrets of a release on this host, signed by one authority.
type cluster struct {
	dir       string
	authority *certs.Authority
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	authority, err := certs.Init(dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{dir, authority}
}

// write writes a secret with a certificate to a new directory.
func (c *cluster) write(t *testing.T, uri string, hosts []string) (dir string) {
	t.Helper()
	id, err := identity.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	files, err := c.authority.Issue(id, hosts, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, file := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key, "ca.crt": files.CA} {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// volume returns the directory on this host for a volume of a pod: the files of a
// certificate, of a Secret of the release, or of a secret that the user of the chart
// creates, and otherwise an empty directory.
func (c *cluster) volume(t *testing.T, r *release, v corev1.Volume) string {
	t.Helper()
	if v.CSI != nil {
		return c.write(t, expanded(v.CSI.VolumeAttributes["csi.cert-manager.io/uri-sans"]), nil)
	}
	if v.Secret == nil {
		dir := t.TempDir()
		// As in a pod, the users of workers can reach the directory.
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	name := v.Secret.SecretName
	if issued, found := r.certificateIn(name); found {
		return c.write(t, issued.Spec.URIs[0], issued.Spec.DNSNames)
	}
	if role, found := map[string]string{"registry-tls": "service/registry", "executor-state-tls": "service/executor-state",
		"assigner-tls": "service/assigner", "gateway-tls": "gateway/gateway", "agents-tls": "agent/*",
		"etcd-client": "service/etcd-client"}[name]; found {
		return c.write(t, "berth://west/"+role, []string{metricsName})
	}
	files := map[string]string{"password": "secret", "access.yaml": fmt.Sprintf(
		"tokens: [{role: viewer, name: prometheus, sha256: %x}]", sha256.Sum256([]byte(prometheusToken)))}
	if secret, found := find[*corev1.Secret](r, name); found {
		files = secret.StringData
	}
	dir := t.TempDir()
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
