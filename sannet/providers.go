package sannet

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"sansock/emu"
	providers "sansock/internal/stack"
	"sansock/provider"
	"sansock/provider/ofi"
	sanswitch "sansock/switch"
)

// openers has the providers by name. Without the build tag ofi, that one only says so.
var openers = map[string]providers.Opener{
	"emu": func() (provider.Provider, error) { return emu.New(emu.Config{}) },
	"ofi": func() (provider.Provider, error) { return ofi.Open(ofi.Config{}) },
}

// defaultProviders are those used where SANNET_PROVIDERS is not set, in order of preference. The build tag ofi
// adds that provider.
var defaultProviders = []string{"emu"}

// stack is a switch, and what is known of its making.
type stack struct {
	*sanswitch.Switch
	err error // why providers that were asked for are missing
}

// defaultStack is the process's own. It is never closed.
var defaultStack = sync.OnceValue(func() stack { return openStack(os.Getenv("SANNET_PROVIDERS")) })

// stackOf returns the stack of sw, by default the process's own.
func stackOf(sw *sanswitch.Switch) stack {
	if sw == nil {
		return defaultStack()
	}
	return stack{Switch: sw}
}

// openStack opens the providers of a list, see stack.Open.
func openStack(list string) stack {
	ps, err := providers.Open(list, defaultProviders, openers)
	return stack{sanswitch.New(sanswitch.Config{Providers: ps}), err}
}

// explain adds the missing providers to the error of a network that needs one.
func (st stack) explain(network string, err error) error {
	oe, ok := err.(*net.OpError)
	if st.err == nil || !ok || !strings.HasPrefix(network, "san") {
		return err
	}
	e := *oe
	e.Err = fmt.Errorf("%w (%w)", oe.Err, st.err)
	return &e
}

// wrap makes the connection that the user gets, with the keep-alive options of a Dialer or ListenConfig.
func (st stack) wrap(r sanswitch.Result, network string, idle time.Duration, ka net.KeepAliveConfig) net.Conn {
	route := r.Route
	if route.Err == nil && route.Path != sanswitch.PathSAN {
		route.Err = st.err
	}
	if r.Session == nil {
		if tc, ok := r.Conn.(*net.TCPConn); ok {
			remember(tc, route)
		}
		return r.Conn
	}
	c := newConn(network, r.Session, route)
	c.sw = st.Switch
	if r.KeepAlive != nil {
		c.SetKeepAliveConfig(*r.KeepAlive)
	}
	// As net does: on by default, KeepAlive sets the period, KeepAliveConfig everything.
	if !ka.Enable && idle >= 0 {
		ka = net.KeepAliveConfig{Enable: true, Idle: idle}
	}
	if ka.Enable {
		c.SetKeepAliveConfig(ka)
	}
	return c
}
