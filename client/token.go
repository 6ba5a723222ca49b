package client

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// token adds a bearer token to each call.
type token func(ctx context.Context) (string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (source token) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	text, err := source(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Errorf(codes.PermissionDenied, "cannot get the bearer token: %v", err)
	case text == "":
		return nil, status.Error(codes.PermissionDenied, "the bearer token is empty")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, status.Error(codes.PermissionDenied, "the bearer token contains a space or a character outside ASCII")
	}
	return map[string]string{"authorization": "Bearer " + text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return true }
