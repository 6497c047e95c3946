//go:build ofi && cgo && linux

package ofi

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		code, prov int
		want       provider.Status
	}{
		{0, 0, provider.StatusOK},
		{codeCancelled, 5, provider.StatusAborted},
		{int(syscall.EPIPE), 0, provider.StatusAborted},
		{codeTruncated, 0, provider.StatusTooLong},
		{int(syscall.EIO), wcLocalLength, provider.StatusTooLong},
		{int(syscall.EIO), wcRemoteInvalid, provider.StatusTooLong},
		{int(syscall.EIO), wcRemoteAccess, provider.StatusAccess},
		{int(syscall.EIO), wcLocalProtect, provider.StatusLocal},
		{int(syscall.EIO), wcNoReceive, provider.StatusNotReady},
		{int(syscall.EIO), 12, provider.StatusLink}, // retries exceeded
		{int(syscall.EACCES), 0, provider.StatusAccess},
		{int(syscall.EINVAL), 0, provider.StatusLink},
	} {
		require.Equal(t, c.want, statusOf(done{code: c.code, prov: c.prov}), "%+v", c)
	}
	// A status may keep the switch from falling back only where TCP would fail, too.
	for _, fabric := range []string{fabricTCP, fabricVerbs} {
		for code := range syscall.Errno(300) {
			s := connectStatus(fabric, code)
			require.NotEqual(t, provider.StatusRefused, s, "%s: %v", fabric, code)
			unreachable := fabric == fabricTCP && (code == syscall.EHOSTUNREACH || code == syscall.ENETUNREACH)
			require.Equal(t, unreachable, s == provider.StatusUnreachable, "%s: %v", fabric, code)
		}
	}
}
