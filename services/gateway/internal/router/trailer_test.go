package router

import (
	"testing"

	"google.golang.org/grpc/metadata"
)

// If the router replaces the error of an attempt, the new error does not have the details
// of that attempt.
func TestTheDetailsOfAnAttemptAreNotPassedOn(t *testing.T) {
	attempt := metadata.Pairs("grpc-status-details-bin", "of code 14", "other", "kept")
	got := passed(attempt)
	if len(got.Get("grpc-status-details-bin")) != 0 || len(got.Get("other")) != 1 || attempt.Len() != 2 {
		t.Errorf("got %v of %v", got, attempt)
	}
}
