package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// waived is what a remote provider cannot keep.
var waived = map[string]string{
	"cost/allocations": "calls are encoded",
	"region/allocate":  "the memory is in the other process",
}

// TestThroughStream runs the suite with one provider behind a stream, and memory that happens to be in the same process.
func TestThroughStream(t *testing.T) {
	for name, swap := range map[string]bool{"listener": false, "dialer": true} {
		t.Run(name, func(t *testing.T) {
			mem := make([]byte, 64<<20)
			synctest.Test(t, func(t *testing.T) {
				var last io.Closer
				var served sync.WaitGroup
				var far *Provider
				var ferr error
				open := func() (dialer, listener provider.Provider, err error) {
					if last != nil {
						last.Close()
						served.Wait()
					}
					fabric := emu.NewFabric()
					c := emu.Config{Fabric: fabric, MaxMessage: 64 << 10, MaxRDMA: 64 << 10, MaxRecvs: 64, MaxSends: 32,
						MaxRDMAs: 8}
					near, err := emu.New(c)
					require.NoError(t, err)
					inner, err := emu.New(c)
					require.NoError(t, err)
					here, there := net.Pipe()
					served.Go(func() { ferr = Serve(there, inner, mem); there.Close() })
					last = here
					if far, err = New(here, mem); err != nil {
						return nil, nil, err
					}
					if swap {
						return far, near, nil
					}
					return near, far, nil
				}
				found := providertest.Check(providertest.Config{
					Open:   open,
					Rounds: 10,
					Waive:  waived,
					Memory: func(p provider.Provider, n int) []byte {
						if p == provider.Provider(far) {
							return far.Memory(n)
						}
						return make([]byte, n)
					},
				})
				last.Close()
				served.Wait()
				assert.Empty(t, found)
				assert.NoError(t, ferr)
			})
		})
	}
}

// TestErrors shows that errors arrive as what they are.
func TestErrors(t *testing.T) {
	for _, err := range []error{
		nil,
		provider.StatusQueueFull,
		&provider.Error{Provider: "emu", Op: "dial", Status: provider.StatusRefused, Reason: []byte("no")},
		&provider.Error{Provider: "emu", Op: "dial", Status: provider.StatusAborted, Err: context.Canceled},
		&provider.Error{Provider: "emu", Op: "dial", Status: provider.StatusTimeout, Err: context.DeadlineExceeded},
	} {
		assert.Equal(t, err, pack(err).err())
	}
	err := pack(errors.New("odd")).err()
	assert.Equal(t, provider.StatusLink, provider.StatusOf(err))
	assert.ErrorContains(t, err, "odd")
	assert.ErrorIs(t, pack(net.ErrClosed).err(), errOther)
}

// TestBroken shows that nothing hangs when the other process is gone.
func TestBroken(t *testing.T) {
	here, there := net.Pipe()
	inner, err := emu.New(emu.Config{Fabric: emu.NewFabric()})
	require.NoError(t, err)
	mem := make([]byte, 4096)
	var served sync.WaitGroup
	served.Go(func() { Serve(there, inner, mem) })
	p, err := New(here, mem)
	require.NoError(t, err)
	l, err := p.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1)
	require.NoError(t, err)
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	here.Close()
	served.Wait()
	assert.Error(t, <-accepted)
	_, err = p.Dial(t.Context(), netip.AddrPort{}, l.Addr())
	assert.ErrorIs(t, err, provider.StatusLink)

	assert.Len(t, p.Memory(4000), 4000)
	assert.Nil(t, p.Memory(100))
}
