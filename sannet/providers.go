package sannet

import (
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sansock/emu"
	"sansock/internal/bubble"
	"sansock/internal/hostaddr"
	"sansock/internal/hostcheck"
	"sansock/internal/inline"
	"sansock/provider"
	"sansock/provider/ofi"
	sanswitch "sansock/switch"
)

// openers has the providers by name. Without the build tag ofi, that one only says so.
var openers = map[string]func() (provider.Provider, error){
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
	list := os.Getenv(providersEnv)
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
	names := defaultProviders
	if list = strings.TrimSpace(list); list != "" {
		names = strings.Split(list, ",")
	}
	var (
		ps           []provider.Provider
		errs         []error
		used, failed []Provider
	)
	asked := make(map[string]bool)
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "none" || name == "" || asked[name] {
			continue
		}
		asked[name] = true
		p, err := openProvider(name)
		if err != nil {
			errs = append(errs, err)
			failed = append(failed, Provider{Name: name, Err: err})
			continue
		}
		ps = append(ps, p)
		used = append(used, Provider{Name: name})
	}
	st := stack{Switch: sanswitch.New(sanswitch.Config{Providers: ps}), err: inline.Join(errs)}
	st.known = append(append(used, failed...), others(asked)...)
	return st
}

func openProvider(name string) (provider.Provider, error) {
	open := openers[name]
	if open == nil {
		have := strings.Join(slices.Sorted(maps.Keys(openers)), ", ")
		return nil, fmt.Errorf("%s: no provider %q is built in, only %s", providersEnv, name, have)
	}
	p, err := open()
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	return p, nil
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
	// As net does: on by default, KeepAlive sets the period, KeepAliveConfig everything.
	if !ka.Enable && idle >= 0 {
		ka = net.KeepAliveConfig{Enable: true, Idle: idle}
	}
	if ka.Enable && st.Home() { // elsewhere its timer would be of no use
		c.SetKeepAliveConfig(ka)
	}
	return c
}
