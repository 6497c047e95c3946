package sannet

import (
	"bytes"
	"errors"
	"log"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	providers "sansock/internal/stack"
	"sansock/provider"
)

// A program can ask which providers it has, and why it has no others.
func TestProviders(t *testing.T) {
	openers["broken"] = func() (provider.Provider, error) { return nil, errors.New("device on fire") }
	defer delete(openers, "broken")
	defer func(old []string) { defaultProviders = old }(defaultProviders)
	const (
		noOFI   = "ofi: not used: ofi: open: unsupported: built without libfabric (needs Linux, cgo and the tag ofi)"
		noEmu   = "emu: not used: not asked for by SANNET_PROVIDERS"
		broken  = "broken: not used: provider broken: device on fire"
		unasked = "broken: not used: device on fire"
		emuu    = `emuu: not used: SANNET_PROVIDERS: no provider "emuu" is built in, only broken, emu, ofi`
	)
	for _, c := range []struct {
		list     string
		defaults []string
		want     []string
	}{
		{"", []string{"emu"}, []string{"emu", unasked, noOFI}},
		{"", []string{"emu", "broken"}, []string{"emu", broken, noOFI}},
		{"none", []string{"emu", "broken"}, []string{"broken: not used: not asked for by SANNET_PROVIDERS", noEmu, noOFI}},
		{"emu", []string{"emu"}, []string{"emu", unasked, noOFI}},
		{"emuu", []string{"emu"}, []string{emuu, unasked, noEmu, noOFI}},
		{"broken,emuu,emu", []string{"emu"}, []string{"emu", broken, emuu, noOFI}},
	} {
		t.Run(c.list, func(t *testing.T) {
			defaultProviders = c.defaults
			st := openStack(c.list)
			defer st.Close()
			useDefault(t, st)
			var got []string
			for _, p := range Providers() {
				if p.Name == "ofi" && p.Err != nil && !errors.Is(p.Err, errors.ErrUnsupported) {
					t.Skip("this build has libfabric")
				}
				got = append(got, p.String())
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// A misspelt provider is logged, once, as nothing else would tell.
func TestMisspeltProvider(t *testing.T) {
	if os.Getenv("SANNET_TEST_MISSPELT") != "" {
		var logged bytes.Buffer
		log.SetOutput(&logged)
		log.SetFlags(0)
		for range 3 {
			_, err := Dial("san", "127.0.0.1:1")
			assert.ErrorContains(t, err, `no provider "emuu" is built in`)
		}
		assert.Equal(t, "sannet: SANNET_PROVIDERS: no provider \"emuu\" is built in, only emu, ofi\n", logged.String())
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestMisspeltProvider$", "-test.v")
	cmd.Env = append(os.Environ(), "SANNET_TEST_MISSPELT=1", providers.Env+"=emuu")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

// A network that there is not is net's to complain about, whatever providers are missing.
func TestUnknownNetwork(t *testing.T) {
	st := openStack("emuu")
	defer st.Close()
	useDefault(t, st)
	for _, network := range []string{"sann", "san5", "sandwich", "SAN", ""} {
		_, want := net.Dial(network, "127.0.0.1:1")
		_, err := Dial(network, "127.0.0.1:1")
		require.Error(t, err)
		assert.Equal(t, want.Error(), err.Error())
		_, want = net.Listen(network, "127.0.0.1:1")
		_, err = Listen(network, "127.0.0.1:1")
		require.Error(t, err)
		assert.Equal(t, want.Error(), err.Error())
	}
}
