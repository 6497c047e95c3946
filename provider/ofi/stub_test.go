//go:build !ofi || !cgo || !linux

package ofi

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestStub(t *testing.T) {
	p, err := Open(Config{})
	require.Nil(t, p)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	var e *provider.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, provider.StatusUnsupported, e.Status)
	require.Contains(t, err.Error(), "tag ofi")
}
