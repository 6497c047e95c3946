//go:build linux

package shm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"golang.org/x/sys/unix"

	"sansock/provider"
	"sansock/session"
)

// The other process of a test is the test binary in a role. It says where it listens in its first line of output, and
// ends when its input does.

var roles = map[string]func(s *san, l provider.Listener) error{
	"echo":     serveWith(echo),
	"sum":      serveWith(sum),
	"sink":     serveWith(copyOut),
	"mute":     serveWith(func(c net.Conn) { select {} }),
	"deaf":     func(*san, provider.Listener) error { select {} },
	"plain":    plain((*end).next),
	"parked":   plain((*end).nextParked),
	"full":     serveWith(func(c net.Conn) { fill(); echo(c) }),
	"random":   random,
	"busy":     busy,
	"exposing": exposing,
	"mortal":   mortal,
	"writing":  writing,

	"tally": tally((*end).next), "tally spinning": tally((*end).nextSpinning), "tally parked": tally((*end).nextParked),
}

func play(role string) int {
	if runtime.GOOS != "linux" {
		return 1
	}
	if role == "husk" {
		return husk()
	}
	if strings.HasPrefix(role, "tcp-") {
		return playTCP(role)
	}
	s := newSAN(Config{Space: os.Getenv("SANSOCK_SHM_SPACE")})
	l, err := s.Listen(loopback, 4096)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(l.Addr().Port())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := roles[role](s, l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playTCP(role string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	do := map[string]func(net.Conn){
		"tcp-echo": echo, "tcp-sink": copyOut,
	}[role]
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		go do(c)
	}
}

func copyOut(c net.Conn) {
	buf := make([]byte, 256<<10)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// serveWith accepts sessions and has f serve each.
func serveWith(f func(net.Conn)) func(*san, provider.Listener) error {
	return func(s *san, l provider.Listener) error {
		for {
			ep, err := accept(l)
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			if err != nil {
				continue
			}
			go func() {
				c, err := session.Negotiate(context.Background(), ep, session.Listener, session.Config{})
				if err == nil {
					f(conn{c})
					c.Close()
				}
			}()
		}
	}
}

func echo(c net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// sum answers with the checksum of all that came before the end.
func sum(c net.Conn) {
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, c); err == nil {
		fmt.Fprintf(c, "%08x", h.Sum32())
	}
}

// fill fills the table of descriptors.
func fill() {
	limit := unix.Rlimit{Cur: 64, Max: 64}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	for {
		if _, err := unix.Dup(0); err != nil {
			return
		}
	}
}

// plain echoes messages without a session, and is woken for each.
func plain(next func(*end) provider.Completion) func(*san, provider.Listener) error {
	return func(s *san, l provider.Listener) error {
		for {
			ep, err := accept(l)
			if err != nil {
				return err
			}
			go func() {
				e := newEnd(nil, ep)
				defer e.Close()
				r, err := e.Allocate(32 * 64)
				if err != nil {
					return
				}
				for i := range 32 {
					e.PostRecv(provider.Recv{Context: uint64(i), Buffer: r.Segment(i*64, 64)})
				}
				for {
					c := next(e)
					if c.Op != provider.OpRecv || c.Status != provider.StatusOK {
						return
					}
					m := append([]byte(nil), r.Bytes[c.Context*64:][:c.Len]...)
					e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*64, 64)})
					e.PostSend(provider.Send{Inline: [2][]byte{m}, Solicited: true})
				}
			}()
		}
	}
}

// conn makes a net.Conn of a session.
type conn struct{ *session.Conn }

func (c conn) LocalAddr() net.Addr  { return nil }
func (c conn) RemoteAddr() net.Addr { return nil }

// process is another process.
type process struct {
	*exec.Cmd
	in   io.WriteCloser
	addr netip.AddrPort
	once sync.Once
}

// start runs the test binary in a role. It is killed with the test.
func start(t testing.TB, role, space string, env ...string) *process {
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(append(os.Environ(), roleVar+"="+role, "SANSOCK_SHM_SPACE="+space), env...)
	p.Stderr = os.Stderr
	var err error
	p.in, err = p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the other process has said nothing")
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	require.NoError(t, err)
	p.addr = netip.AddrPortFrom(loopback.Addr(), uint16(port))
	return p
}

func (p *process) kill() {
	p.once.Do(func() {
		p.Process.Kill()
		p.in.Close()
		p.Wait()
	})
}

// dial makes a session with the process.
func (p *process) dial(t testing.TB, s *san) *session.Conn { return p.dialWith(t, s, session.Config{}) }

func (p *process) dialWith(t testing.TB, s *san, cfg session.Config) *session.Conn {
	c, _ := p.dialBoth(t, s, cfg)
	return c
}

// dialBoth returns the endpoint, too.
func (p *process) dialBoth(t testing.TB, s *san, cfg session.Config) (*session.Conn, *endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ep, err := s.Dial(ctx, netip.AddrPort{}, p.addr)
	require.NoError(t, err)
	c, err := session.Negotiate(ctx, ep, session.Dialer, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, ep.(*endpoint)
}

func space(t testing.TB) string { return fmt.Sprint(os.Getpid(), t.Name()) }

func TestEcho(t *testing.T) {
	p := start(t, "echo", space(t))
	s := openSAN(t, Config{Space: space(t)})
	for range 3 {
		c := p.dial(t, s)
		for _, n := range []int{1, 64, 1000, 16 << 10, 300 << 10, 1 << 20} {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(i * n)
			}
			go c.Write(data)
			got := make([]byte, n)
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.Equal(t, data, got)
		}
		require.NoError(t, c.Close())
	}
	s.links0(t)
}

func TestStream(t *testing.T) {
	p := start(t, "sum", space(t))
	s := openSAN(t, Config{Space: space(t)})
	c := p.dial(t, s)
	h := crc32.NewIEEE()
	data := make([]byte, 1<<20)
	x := uint32(1)
	for sent, i := 0, 0; sent < 100<<20; i++ {
		n := 1 + int(x>>8)%len(data)
		for k := 0; k < n; k += 61 {
			x = x*1664525 + 1013904223
			data[k] = byte(x >> 24)
		}
		h.Write(data[:n])
		_, err := c.Write(data[:n])
		require.NoError(t, err)
		sent += n
	}
	require.NoError(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%08x", h.Sum32()), string(got))
}

func TestDeadlineAndClose(t *testing.T) {
	p := start(t, "mute", space(t))
	s := openSAN(t, Config{Space: space(t)})
	c := p.dial(t, s)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	done := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// idle reports whether a node has nothing.
func idle(s *san) bool {
	s.Node.mu.Lock()
	defer s.Node.mu.Unlock()
	return len(s.links) == 0 && s.memory.Load() == 0 && len(s.flows[0])+len(s.flows[1])+len(s.out) == 0
}

// TestKilledMessages has a peer send, and die: what had arrived is received, then comes the end.
func TestKilledMessages(t *testing.T) {
	p := start(t, "plain", space(t))
	s := openSAN(t, Config{Space: space(t)})
	ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
	require.NoError(t, err)
	defer ep.Close()
	e := newEnd(t, ep)
	e.receives(8, 64)
	e.say("hello")
	require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: 5}, e.next()) // now the peer has posted receives
	for range 3 {
		e.say("again")
	}
	for i := uint64(1); i < 4; i++ {
		require.Equal(t, provider.Completion{Op: provider.OpRecv, Context: i, Len: 5}, e.next())
	}
	p.kill()
	for i := uint64(4); i < 8; i++ {
		require.Equal(t, provider.Completion{Op: provider.OpRecv, Context: i, Status: provider.StatusAborted}, e.next())
	}
	require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusExited}, e.next())
}

// TestStopped stops the peer: nothing is lost when it goes on.
func TestStopped(t *testing.T) {
	p := start(t, "echo", space(t))
	s := openSAN(t, Config{Space: space(t)})
	c := p.dial(t, s)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 5))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	_, err = s.Dial(ctx, netip.AddrPort{}, p.addr)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	b := make([]byte, 5)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, "hello", string(b))
}

// TestFullTable has a peer without a free descriptor, which still takes in the memory of ours. New connections do not come
// about, and are free to go over TCP.
func TestFullTable(t *testing.T) {
	p := start(t, "full", space(t))
	s := openSAN(t, Config{Space: space(t)})
	c := p.dial(t, s)
	data := make([]byte, 6<<20)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	go c.Write(data)
	got := make([]byte, len(data))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	s.links0(t).arena.mu.Lock()
	grown := len(s.links0(t).arena.segs)
	s.links0(t).arena.mu.Unlock()
	require.Greater(t, grown, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = openSAN(t, Config{Space: space(t)}).Dial(ctx, netip.AddrPort{}, p.addr)
	require.Error(t, err)
}

// links0 is the only link.
func (s *san) links0(t testing.TB) (l *link) {
	s.Node.mu.Lock()
	defer s.Node.mu.Unlock()
	require.Len(t, s.links, 1)
	for l = range s.links {
	}
	return l
}

// TestInherit looks at what a child process gets.
func TestInherit(t *testing.T) {
	p := start(t, "mute", space(t))
	s := openSAN(t, Config{Space: space(t)})
	p.dial(t, s)
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	require.NoError(t, err)
	require.NotContains(t, string(out), "socket:")
	require.NotContains(t, string(out), "eventfd")
	require.NotContains(t, string(out), "memfd")
}

// TestWake bounces messages with pauses around the time for which a waiter spins. Both ends wait as sessions do: they spin,
// then sleep parked; and, the second time, without that.
//
// By hand: SANSOCK_WAKES=1000000.
func TestWake(t *testing.T) {
	rounds := 3000
	if v := os.Getenv("SANSOCK_WAKES"); v != "" {
		rounds, _ = strconv.Atoi(v)
	}
	for role, next := range map[string]func(*end) provider.Completion{"parked": (*end).nextParked, "plain": (*end).nextSpinning} {
		t.Run(role, func(t *testing.T) {
			p := start(t, role, space(t))
			s := openSAN(t, Config{Space: space(t)})
			ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
			require.NoError(t, err)
			defer ep.Close()
			e := newEnd(t, ep)
			r := e.receives(16, 64)
			var round atomic.Int64
			stop := make(chan struct{})
			defer close(stop)
			go func() { // slow is not stuck
				for last := int64(-1); ; last = round.Load() {
					select {
					case <-stop:
						return
					case <-time.After(time.Minute):
					}
					if round.Load() == last {
						debug.SetTraceback("all")
						panic("a wake-up was lost")
					}
				}
			}()
			for i := range rounds {
				round.Store(int64(i))
				e.say("x")
				c := next(e)
				require.Equal(t, provider.OpRecv, c.Op)
				require.NoError(t, e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*64, 64)}))
				if i%3 == 0 {
					for until := time.Now().Add(time.Duration(i%200) * 200 * time.Nanosecond); time.Now().Before(until); {
					}
				}
			}
			t.Logf("%d sleeps parked, %d otherwise", e.parked, e.slept)
			require.Equal(t, role == "parked", e.parked > 0)
		})
	}
}
