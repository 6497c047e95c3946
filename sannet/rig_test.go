package sannet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// stuck is how long a step may take before the test counts as hanging. Nothing waits for it otherwise.
const stuck = 30 * time.Second

// path is a way to make connections.
type path struct {
	name     string
	listen   func(network, address string) (net.Listener, error)
	dialWith func(ctx context.Context, d sannet.Dialer, network, address string) (net.Conn, error)
	rest     func() bool // reports that the other process is at rest; nil: there is none
}

func (p path) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p.dialWith(ctx, sannet.Dialer{}, network, address)
}

// openSAN opens the SAN under test. The build tag ofi can make it another one.
var openSAN = func() (provider.Provider, error) { return emu.New(emu.Config{}) }

// newSwitch returns a switch with a SAN, or without any.
func newSwitch(t testing.TB, san bool) *sanswitch.Switch {
	var cfg sanswitch.Config
	if san {
		p, err := openSAN()
		require.NoError(t, err)
		cfg.Providers = []provider.Provider{p}
	}
	sw := sanswitch.New(cfg)
	t.Cleanup(func() { sw.Close() })
	return sw
}

// tcpPath is plain net, which the others are compared with.
func tcpPath(testing.TB) path {
	dial := func(ctx context.Context, d sannet.Dialer, network, address string) (net.Conn, error) {
		nd := net.Dialer{
			Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, Control: d.Control,
			KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig,
		}
		return nd.DialContext(ctx, network, address)
	}
	return path{name: "tcp", listen: net.Listen, dialWith: dial}
}

// sanPath runs over the emulated SAN.
func sanPath(t testing.TB) path {
	sw := newSwitch(t, true)
	return path{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}
}

// shmPath runs over the emulated SAN, and no other, as between processes: the dialer does not find the listener in its own.
func shmPath(t testing.TB) path {
	open := func(c emu.Config) *sanswitch.Switch {
		p, err := emu.New(c)
		require.NoError(t, err)
		sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
		t.Cleanup(func() { sw.Close() })
		return sw
	}
	listener := open(emu.Config{Fabric: emu.SharedFabric("")})
	return path{name: "shm", listen: listenWith(listener), dialWith: dialWith(open(emu.Config{}))}
}

// fallbackPath dials with an emulated SAN which the listener does not have.
func fallbackPath(t testing.TB) path {
	return path{name: "fallback", listen: listenWith(newSwitch(t, false)), dialWith: dialWith(newSwitch(t, true))}
}

func listenWith(sw *sanswitch.Switch) func(network, address string) (net.Listener, error) {
	lc := sannet.ListenConfig{Switch: sw}
	return func(network, address string) (net.Listener, error) {
		return lc.Listen(context.Background(), network, address)
	}
}

// dialed counts the connections that were made with dialWith.
var dialed tally

type tally struct{ san, tcp atomic.Int64 }

func (t *tally) count(c net.Conn) {
	switch c.(type) {
	case *sannet.Conn:
		t.san.Add(1)
	case *net.TCPConn:
		t.tcp.Add(1)
	}
}

func (t *tally) take() (san, tcp int64) { return t.san.Swap(0), t.tcp.Swap(0) }

func dialWith(sw *sanswitch.Switch) func(context.Context, sannet.Dialer, string, string) (net.Conn, error) {
	return func(ctx context.Context, d sannet.Dialer, network, address string) (net.Conn, error) {
		d.Switch = sw
		c, err := d.DialContext(ctx, network, address)
		if d.LocalAddr == nil { // which may not be the SAN's
			dialed.count(c)
		}
		return c, err
	}
}

// onPaths runs f over the SAN, within the process and as between processes, and over the fallback.
func onPaths(t *testing.T, f func(*testing.T, path)) {
	paths := []func(testing.TB) path{sanPath, fallbackPath}
	if runtime.GOOS == "linux" {
		paths = append(paths, shmPath)
	}
	for _, newPath := range paths {
		p := newPath(t)
		t.Run(p.name, func(t *testing.T) { f(t, p) })
	}
}

// connect makes a connection and returns both ends.
func (p path) connect(network, address string) (client, server net.Conn, err error) {
	l, err := p.listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	client, err = p.dial(context.Background(), network, l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	server, err = l.Accept()
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, server, nil
}

// conn is what all paths have in common.
type conn interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
	SetLinger(int) error
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

// script runs one case over one path and writes down what is observed. Each goroutine of a case has its own, so that the
// order of the notes is that of the case.
type script struct {
	*testing.T
	path
	names *names
	notes []string
}

// names are what addresses are called in the notes.
type names struct {
	sync.Mutex
	oldnew []string
}

// note writes a line down.
func (s *script) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// result writes down what a call returned.
func (s *script) result(call string, n any, err error) {
	s.note("%s: %v, %s", call, n, s.describe(err))
}

// failed writes down how a call failed, or that it did not.
func (s *script) failed(call string, err error) { s.note("%s: %s", call, s.describe(err)) }

// name calls an address by a name in what is written down.
func (s *script) name(a net.Addr, name string) { s.rename(a.String(), name) }

func (s *script) rename(old, name string) {
	s.names.Lock()
	defer s.names.Unlock()
	s.names.oldnew = append(s.names.oldnew, old, name)
}

// describe tells everything about err that a program may depend on.
func (s *script) describe(err error) string {
	if err == nil {
		return "no error"
	}
	s.names.Lock()
	text := strings.NewReplacer(s.names.oldnew...).Replace(err.Error())
	s.names.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%q", text)
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&b, " %T", e)
		if oe, ok := e.(*net.OpError); ok {
			fmt.Fprintf(&b, "{%s %s %T %T}", oe.Op, oe.Net, oe.Source, oe.Addr)
		}
	}
	if err == io.EOF {
		b.WriteString(" bare io.EOF")
	}
	for _, known := range []error{net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled, context.DeadlineExceeded,
		syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED, syscall.ETIMEDOUT, syscall.EINVAL,
		syscall.EADDRINUSE, syscall.ENOTCONN} {
		if errors.Is(err, known) {
			fmt.Fprintf(&b, " is %q", known.Error())
		}
	}
	if ne, ok := err.(interface{ Timeout() bool }); ok {
		fmt.Fprintf(&b, " timeout=%t", ne.Timeout())
	}
	if ne, ok := err.(interface{ Temporary() bool }); ok { // as net/http's Serve asks
		fmt.Fprintf(&b, " temporary=%t", ne.Temporary())
	}
	return b.String()
}

// pair makes a connection, which the end of the test closes.
func (s *script) pair() (client, server conn) {
	s.Helper()
	return s.pairOn("tcp", "127.0.0.1:0")
}

// pairOn is pair on another network or address.
func (s *script) pairOn(network, address string) (client, server conn) {
	s.Helper()
	c, sv, err := s.connect(network, address)
	require.NoError(s, err)
	s.name(c.LocalAddr(), "CLIENT")
	s.name(c.RemoteAddr(), "SERVER")
	s.tidy(c, sv)
	return c.(conn), sv.(conn)
}

// tidy closes the connections at the end of the test, or when it hangs.
func (s *script) tidy(cs ...io.Closer) {
	closeAll := func() {
		for _, c := range cs {
			c.Close()
		}
	}
	watch := time.AfterFunc(stuck, func() {
		s.Error("the test hangs")
		closeAll()
	})
	s.Cleanup(func() {
		watch.Stop()
		closeAll()
	})
}

// park runs f in a goroutine and returns once that waits for something, or ends. The returned function waits for its
// end and takes over its notes.
func (s *script) park(f func(*script)) (wait func()) {
	child := &script{T: s.T, path: s.path, names: s.names}
	id := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var header [64]byte
		text := string(header[:runtime.Stack(header[:], false)]) // goroutine 7 [running]: ...
		id <- text[:strings.Index(text, "[")+1]
		f(child)
	}()
	wait = func() {
		s.Helper()
		select {
		case <-done:
			s.notes = append(s.notes, child.notes...)
		case <-time.After(stuck):
			s.Fatal("goroutine does not end")
		}
	}
	prefix := []byte(<-id)
	for start, looks := time.Now(), 0; looks < 3; {
		select {
		case <-done:
			return wait
		default:
		}
		if !isParked(prefix) || s.rest != nil && !s.rest() {
			looks = 0
		} else {
			looks++
		}
		if time.Since(start) > stuck {
			s.Fatal("goroutine does not come to rest")
		}
		runtime.Gosched()
	}
	return wait
}

// isParked reports whether the goroutine, whose line in a dump of stacks begins with prefix, waits.
func isParked(prefix []byte) bool {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	i := bytes.Index(buf, prefix)
	if i < 0 {
		return false
	}
	return waits(string(buf[i+len(prefix):][:20]))
}

// waits reports whether the state in the dump of a goroutine is one of waiting.
func waits(state string) bool {
	for _, busy := range []string{"running", "runnable", "syscall"} {
		if strings.HasPrefix(state, busy) {
			return false
		}
	}
	return true
}

// fill writes until it fails and returns how much was written, and the error.
func fill(w io.Writer) (total int, err error) {
	b := zeros(1 << 20)
	for range 1 << 10 {
		var n int
		n, err = w.Write(b)
		total += n
		if err != nil {
			break
		}
	}
	return total, err
}

// zeros returns n zero bytes. They are not to be changed.
func zeros(n int) []byte { return zeroes()[:n:n] }

var zeroes = sync.OnceValue(func() []byte { return make([]byte, 64<<20) })

// pattern returns n bytes that differ from place to place. They are not to be changed.
func pattern(n int) []byte { return patterns()[:n:n] }

var patterns = sync.OnceValue(func() []byte {
	b := make([]byte, 10<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
})
