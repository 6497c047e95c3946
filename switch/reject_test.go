package sanswitch

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
)

// WSD's rule: these three, from a provider's dial, end the dial. Nothing else does.
func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want syscall.Errno
	}{
		{"refused", &provider.Error{Status: provider.StatusRefused}, syscall.ECONNREFUSED},
		{"unreachable", &provider.Error{Status: provider.StatusUnreachable}, syscall.EHOSTUNREACH},
		{"disconnected", &provider.Error{Status: provider.StatusDisconnected}, syscall.ECONNRESET},
		{"bare status", provider.StatusRefused, syscall.ECONNREFUSED},
		{"bare errno", syscall.ECONNRESET, syscall.ECONNRESET},
		{"wrapped errno", os.NewSyscallError("rdma_connect", syscall.EHOSTUNREACH), syscall.EHOSTUNREACH},
		{"busy", &provider.Error{Status: provider.StatusRefused, Reason: rejectBusy.bytes()}, 0},
		{"later rejection", &provider.Error{Status: provider.StatusRefused, Reason: []byte{77}}, 0},
		{"foreign refusal below", &provider.Error{Status: provider.StatusNoListener, Err: syscall.ECONNREFUSED}, 0},
		{"foreign reset below", &provider.Error{Status: provider.StatusLink, Err: syscall.ECONNRESET}, 0},
		{"no listener", provider.StatusNoListener, 0},
		{"timeout", provider.StatusTimeout, 0},
		{"link", provider.StatusLink, 0},
		{"aborted", provider.StatusAborted, 0},
		{"context", context.Canceled, 0},
		{"other", errors.New("broken"), 0},
		{"other errno", syscall.ENETUNREACH, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == 0 {
				assert.NoError(t, refusal(c.err))
				return
			}
			assert.Equal(t, os.NewSyscallError("connect", c.want), refusal(c.err))
		})
	}
}
