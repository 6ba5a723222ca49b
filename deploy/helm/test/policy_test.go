package chart

import (
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// TestPodSecurityStandards checks pods with the code by which Kubernetes admits them. All
// pods satisfy the standard "restricted", except agents that start workers as other users
// or that use a directory of the node.
func TestPodSecurityStandards(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := 0
	eachRelease(t, func(t *testing.T, r *release) {
		agent, _ := r.values["agent"].(map[string]any)
		for name, template := range r.pods() {
			level := api.LevelRestricted
			switch {
			case name != "berth-agent":
			case agent["hostPath"] != nil:
				level = api.LevelPrivileged
			case agent["workerUids"] != nil:
				level = api.LevelBaseline
			}
			if level == api.LevelRestricted {
				restricted++
			}
			all := evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()},
				&template.ObjectMeta, &template.Spec)
			if result := policy.AggregateCheckResults(all); !result.Allowed {
				t.Errorf("%s is not %s: %s", name, level, result.ForbiddenDetail())
			}
		}
	})
	if restricted < 50 {
		t.Errorf("only %d pods are restricted", restricted)
	}
}

// TestImagesAndResources checks that each image has a version, and that the pods of the
// control plane request processor time and memory, have a limit of memory, and have none
// of processor time.
func TestImagesAndResources(t *testing.T) {
	version := regexp.MustCompile(`^[^@]+:([^:/@]+)(?:@sha256:[0-9a-f]{64})?$`)
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			c := template.Spec.Containers[0]
			if tag := version.FindStringSubmatch(c.Image); tag == nil || tag[1] == "latest" {
				t.Errorf("%s has the image %s", name, c.Image)
			}
			if c.ImagePullPolicy == corev1.PullAlways {
				t.Errorf("%s does not start while the registry of images is down", name)
			}
			if name == "berth-agent" {
				continue // only the user knows what the workers need
			}
			requests, limits := c.Resources.Requests, c.Resources.Limits
			if requests.Cpu().IsZero() || requests.Memory().IsZero() || limits.Memory().IsZero() || !limits.Cpu().IsZero() {
				t.Errorf("%s has the resources %+v", name, c.Resources)
			}
		}
	})
}
