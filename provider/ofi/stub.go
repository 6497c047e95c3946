//go:build !ofi || !cgo || !linux

package ofi

import (
	"errors"

	"sansock/provider"
)

// Open opens the provider. This build has none: the error is a *provider.Error that is errors.ErrUnsupported.
func Open(Config) (provider.Provider, error) {
	return nil, &provider.Error{Provider: name, Op: "open", Status: provider.StatusUnsupported,
		Err: errors.New("built without libfabric (needs Linux, cgo and the tag ofi)")}
}
