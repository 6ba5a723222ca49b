//go:build !linux || !(amd64 || arm64)

package process

import "errors"

// HoldMemory is for Linux on amd64 and arm64.
func HoldMemory() (letGo func(), err error) {
	return nil, errors.ErrUnsupported
}
