package sannet

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
	sanswitch "sansock/switch"
)

func TestOpenStack(t *testing.T) {
	broken := errors.New("device on fire")
	openers["broken"] = func() (provider.Provider, error) { return nil, broken }
	defer delete(openers, "broken")
	defer func(old []string) { defaultProviders = old }(defaultProviders)
	defaultProviders = []string{"emu"} // with the build tag ofi there is another one, which may find no device
	for _, c := range []struct {
		list string
		san  bool
		err  string
	}{
		{"", true, ""},
		{"emu", true, ""},
		{" emu , emu,", true, ""},
		{"none", false, ""},
		{"nosuch", false, `SANNET_PROVIDERS: no provider "nosuch" is built in, only broken, emu, ofi`},
		{"nosuch,emu", true, `SANNET_PROVIDERS: no provider "nosuch" is built in, only broken, emu, ofi`},
		{"broken", false, "provider broken: device on fire"},
		{"broken,nosuch", false, `provider broken: device on fire; SANNET_PROVIDERS: no provider "nosuch" is built in, only broken, emu, ofi`},
		{"broken,emu", true, "provider broken: device on fire"},
	} {
		t.Run(c.list, func(t *testing.T) {
			st := openStack(c.list)
			defer st.Close()
			if c.err == "" {
				require.NoError(t, st.err)
			} else {
				require.EqualError(t, st.err, c.err)
			}
			useDefault(t, st)

			// TCP always works, and says what is missing.
			l, err := Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			conn, err := Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			info, ok := InfoOf(conn)
			require.True(t, ok)
			if c.san {
				assert.Equal(t, "san via emu", info.String())
			} else {
				assert.Equal(t, sanswitch.PathTCP, info.Path)
				assert.Contains(t, info.String(), "tcp: "+sanswitch.ReasonDisabled.String())
				assert.Contains(t, info.String(), c.err)
			}

			// The SAN says it too.
			sl, err := Listen("san", "127.0.0.1:0")
			if c.san {
				require.NoError(t, err)
				sl.Close()
				return
			}
			var oe *net.OpError
			require.ErrorAs(t, err, &oe)
			assert.Nil(t, sl)
			assert.ErrorContains(t, err, c.err)
			conn, err = Dial("san", l.Addr().String())
			require.ErrorAs(t, err, &oe)
			assert.Nil(t, conn)
			assert.ErrorContains(t, err, c.err)
		})
	}
}

// useDefault makes st the process's own stack for one test.
func useDefault(t *testing.T, st stack) {
	old := defaultStack
	defaultStack = func() stack { return st }
	t.Cleanup(func() { defaultStack = old })
}

// TestOtherNetworksNeedNoProvider: they go to net.
func TestOtherNetworksNeedNoProvider(t *testing.T) {
	useDefault(t, openStack("nosuch"))
	l, err := Listen("unix", t.TempDir()+"/socket")
	require.NoError(t, err)
	defer l.Close()
	require.IsType(t, (*net.UnixListener)(nil), l)
	c, err := DialContext(context.Background(), "unix", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, (*net.UnixConn)(nil), c)
	_, ok := InfoOf(c)
	assert.False(t, ok)
}
