package chart

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// reach returns the pods of a release that a rule admits; "*" is every pod.
func reach(t *testing.T, r *release, from []networkingv1.NetworkPolicyPeer) string {
	t.Helper()
	if len(from) == 0 {
		return "anybody at all"
	}
	var names []string
	for _, peer := range from {
		selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if selector.Empty() {
			return "*"
		}
		for name, template := range r.pods() {
			if selector.Matches(labels.Set(template.Labels)) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
