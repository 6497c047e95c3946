package sannet

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"sansock/emu"
	"sansock/internal/bubble"
	"sansock/internal/hostaddr"
	"sansock/internal/hostcheck"
	providers "sansock/internal/stack"
	"sansock/provider"
	"sansock/provider/ofi"
	sanswitch "sansock/switch"
)

// openers has the providers by name. Without the build tag ofi, that one only says so.
var openers = providers.Openers{
	"emu": func() (provider.Provider, error) {
		return emu.New(emu.Config{Prefixes: hostaddr.Prefixes})
	},
	"ofi": func() (provider.Provider, error) { return ofi.Open(ofi.Config{}) },
}

// defaultProviders are those used where SANNET_PROVIDERS is not set, in order of preference. The build tag ofi
// adds that provider.
var defaultProviders = []string{"emu"}

// stack is a switch, and what is known of its making.
type stack struct {
	*sanswitch.Switch
	err   error      // why providers that were asked for are missing
	known []Provider // all that there are
}

// defaultStack is the process's own. It is never closed.
var defaultStack = sync.OnceValue(func() stack {
	list := os.Getenv(providers.Env)
	st := openStack(list)
	if list != "" && st.err != nil {
		// Who asks for a SAN by name and does not get it would not notice: all goes over TCP.
		log.Printf("sannet: %v", st.err)
	}
	return st
})

// stackOf returns the stack of sw, by default the process's own. That is not made, or used, in a
// bubble of testing/synctest: what runs in it must not leave the bubble, and the bubble would not
// end.
func stackOf(sw *sanswitch.Switch) stack {
	switch {
	case sw != nil:
		return stack{Switch: sw}
	case bubble.ID() != 0:
		return noStack
	}
	return defaultStack()
}

// noStack is that of a bubble.
var noStack = stack{
	Switch: sanswitch.New(sanswitch.Config{}),
	err:    errors.New("a testing/synctest bubble has no SAN but one of its own"),
}

// openStack opens the providers of a list such as "ofi,emu", leaving out those that fail. The empty list means the
// default, "none" no provider.
func openStack(list string) stack {
	all := openers.Open(list, defaultProviders)
	ps, err := providers.Usable(all)
	st := stack{Switch: sanswitch.New(sanswitch.Config{Providers: ps}), err: err}
	asked := make(map[string]bool)
	var failed []Provider
	for _, a := range all {
		asked[a.Name] = true
		if a.Err != nil {
			failed = append(failed, Provider{Name: a.Name, Err: a.Err})
		} else {
			st.known = append(st.known, Provider{Name: a.Name})
		}
	}
	st.known = append(append(st.known, failed...), others(asked)...)
	return st
}

// explain adds what keeps the SAN from working to the error of a network that needs one.
func (st stack) explain(network string, err error) error {
	oe, ok := err.(*net.OpError)
	if !ok || !isStream(network) || !strings.HasPrefix(network, "san") {
		return err
	}
	why := st.err
	if refused := systemError(err); refused != nil {
		why = refused
	}
	if why == nil {
		return err
	}
	e := *oe
	e.Err = fmt.Errorf("%w (%w)", oe.Err, why)
	return &e
}

// systemError returns what the system refuses, where that is why the emulated SAN has failed with
// err; nil where it is not.
func systemError(err error) error {
	var e *provider.Error
	if !errors.As(err, &e) || e.Provider != "emu" {
		return nil
	}
	if e.Status != provider.StatusLink && e.Status != provider.StatusNoMemory {
		return nil
	}
	return hostcheck.SharedMemory()
}

// wrap makes the connection that the user gets, with the keep-alive options of a Dialer or ListenConfig.
func (st stack) wrap(r sanswitch.Result, network string, idle time.Duration, ka net.KeepAliveConfig) net.Conn {
	route := r.Route
	if route.Err == nil && route.Path != sanswitch.PathSAN {
		route.Err = st.err
	}
	if refused := systemError(r.Route.Err); refused != nil {
		route.Reason = sanswitch.ReasonSystem
		route.Err = fmt.Errorf("%w (%w)", refused, r.Route.Err)
	}
	if r.Session == nil {
		if tc, ok := r.Conn.(*net.TCPConn); ok {
			remember(tc, route)
		}
		return r.Conn
	}
	c := newConn(network, r.Session, route)
	c.sw = st.Switch
	if !st.Home() { // the timer of keep-alive would be of no use
		return c
	}
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
