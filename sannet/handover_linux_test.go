package sannet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	"sansock/session"
	sanswitch "sansock/switch"
)

// passEnv names what another process does with connections that are passed to it over descriptor 3.
const passEnv = "SANSOCK_TEST_PASS"

func init() {
	if what := os.Getenv(passEnv); what != "" {
		passMain(what, os.Getenv(passEnv+"_ADDR"))
		os.Exit(0)
	}
}

// passMain is the other process.
func passMain(what, addr string) {
	kill := func() {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	check := func(err error) {
		if err != nil {
			os.Stderr.WriteString(what + ": " + err.Error() + "\n")
			os.Exit(1)
		}
	}
	fc, err := net.FileConn(os.NewFile(3, "pass"))
	check(err)
	u := fc.(*net.UnixConn)
	ctx := context.Background()
	switch what {
	case "echo": // serves what is passed
		c, err := sannet.ReceiveConn(ctx, u)
		check(err)
		_, err = io.Copy(c, c)
		check(err)
		check(c.Close())
	case "die at once":
		kill()
	case "die with the state":
		_, err := io.ReadFull(u, make([]byte, 64))
		check(err)
		kill()
	case "die resumed":
		c, err := sannet.ReceiveConn(ctx, u)
		check(err)
		_, err = io.ReadFull(c, make([]byte, 1))
		check(err)
		kill()
	case "leave and die": // dials, hands over, and is gone with the state
		c, err := sannet.Dial("san", addr)
		check(err)
		_, err = c.Write([]byte("hello"))
		check(err)
		_, err = c.(*sannet.Conn).Handover(ctx)
		check(err)
		kill()
	case "leave": // dials, and passes the connection back
		c, err := sannet.Dial("san", addr)
		check(err)
		_, err = c.Write([]byte("hello"))
		check(err)
		check(sannet.SendConn(ctx, u, c))
	}
}

// startPass starts the other process. The returned function waits for its end.
func startPass(t *testing.T, what, addr string) (*net.UnixConn, func()) {
	t.Helper()
	u, file := socketPair(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), passEnv+"="+what, passEnv+"_ADDR="+addr)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{file}
	require.NoError(t, cmd.Start())
	file.Close()
	return u, func() {
		t.Helper()
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return
		}
		assert.NoError(t, err, what)
	}
}

// socketPair returns two ends of a stream, the second for another process.
func socketPair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[0]), "here")
	c, err := net.FileConn(file)
	require.NoError(t, err)
	file.Close()
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "there")
}

// hastySwitch is one whose connections do not wait long for a new end.
func hastySwitch(t *testing.T) *sanswitch.Switch {
	p, err := emu.New(emu.Config{})
	require.NoError(t, err)
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p},
		Session: session.Config{ResumeTimeout: time.Second / 2}})
	t.Cleanup(func() { sw.Close() })
	return sw
}

// A connection over the SAN, and one over TCP, goes on in another process, with data under way in both directions.
func TestSendConn(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		client, server, err := p.connect("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer client.Close()
		u, wait := startPass(t, "echo", "")
		defer wait()
		data := pattern(3 << 20)
		go func() {
			client.Write(data)
			client.(conn).CloseWrite()
		}()
		first := make([]byte, 1000)
		_, err = io.ReadFull(server, first)
		require.NoError(t, err)
		_, err = server.Write(first)
		require.NoError(t, err)
		require.NoError(t, sannet.SendConn(context.Background(), u, server))
		_, err = server.Read(first)
		assert.ErrorIs(t, err, net.ErrClosed)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got), "%d bytes of %d", len(got), len(data))
	})
}

// The end that has dialed comes here from the process that has dialed.
func TestReceiveConn(t *testing.T) {
	sw := newSwitch(t, true)
	l, err := listenWith(sw)("san", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	u, wait := startPass(t, "leave", l.Addr().String())
	defer wait()
	d := sannet.Dialer{Switch: sw}
	c, err := d.ReceiveConn(context.Background(), u)
	require.NoError(t, err)
	defer c.Close()
	s, err := l.Accept()
	require.NoError(t, err)
	defer s.Close()
	b := make([]byte, 5)
	_, err = io.ReadFull(s, b)
	require.NoError(t, err)
	_, err = s.Write(b)
	require.NoError(t, err)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
	assert.Equal(t, s.RemoteAddr(), c.LocalAddr())
	_, err = d.ReceiveConn(context.Background(), u)
	assert.Equal(t, io.EOF, err)
}

// The other process dies, at different moments: the connection comes back, or, once it had gone, both ends see a reset.
func TestSendConnDies(t *testing.T) {
	for _, what := range []string{"die at once", "die with the state", "die resumed"} {
		t.Run(what, func(t *testing.T) {
			sw := hastySwitch(t)
			client, server, err := (path{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}).connect("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer client.Close()
			u, wait := startPass(t, what, "")
			err = sannet.SendConn(context.Background(), u, server)
			if what == "die resumed" {
				require.NoError(t, err)
				_, err = client.Write([]byte("die"))
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				require.NotErrorIs(t, err, net.ErrClosed)
				wait()
				goesOn(t, client, server)
				return
			}
			wait()
			client.SetDeadline(time.Now().Add(stuck))
			_, err = client.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = server.Write(make([]byte, 1))
			assert.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

// The process that leaves dies with the state that it has not passed on.
func TestHandoverDies(t *testing.T) {
	l, err := listenWith(hastySwitch(t))("san", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, wait := startPass(t, "leave and die", l.Addr().String())
	s, err := l.Accept()
	require.NoError(t, err)
	defer s.Close()
	wait()
	s.SetDeadline(time.Now().Add(stuck))
	b, err := io.ReadAll(s)
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	assert.Equal(t, "hello", string(b))
}

// What is not a connection of ours, or not one at all.
func TestPassMalformed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	for name, b := range map[string]string{
		"short":         "S\x01",
		"state":         "S\x03\x00\x00\x00abc",
		"cut":           "S\x09\x00\x00\x00abc",
		"too long":      "S\xff\xff\xff\xff",
		"no socket":     "T\x00\x00\x00\x00",
		"unknown kind":  "?\x00\x00\x00\x00",
		"nothing, ever": "",
	} {
		u, there := socketPair(t)
		_, err := there.WriteString(b)
		require.NoError(t, err)
		require.NoError(t, unix.Shutdown(int(there.Fd()), unix.SHUT_WR))
		c, err := sannet.ReceiveConn(ctx, u)
		require.Error(t, err, name)
		require.Nil(t, c, name)
		there.Close()
	}
	// A socket of another kind, from somebody who does not wait for the answer.
	u, there := socketPair(t)
	other, last := socketPair(t)
	raw, err := other.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.NoError(t, unix.Sendmsg(int(there.Fd()), []byte("T\x00\x00\x00\x00"), unix.UnixRights(int(fd)), nil, 0))
	}))
	there.Close()
	last.Close()
	c, err := sannet.ReceiveConn(ctx, u)
	require.Nil(t, c)
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	assert.Equal(t, "resume", oe.Op)

	u, there = socketPair(t)
	there.Close()
	assert.ErrorIs(t, sannet.SendConn(ctx, u, u), errors.ErrUnsupported)
	u, there = socketPair(t)
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = sannet.ReceiveConn(short, u)
	there.Close()
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	// Nobody answers.
	sw := hastySwitch(t)
	for _, p := range []path{{listen: listenWith(sw), dialWith: dialWith(sw)}, fallbackPath(t)} {
		client, server, err := p.connect("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		u, there := socketPair(t)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		err = sannet.SendConn(short, u, server)
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		u.Close()
		there.Close()
		if _, ok := server.(*sannet.Conn); ok {
			assert.NotErrorIs(t, err, net.ErrClosed)
			goesOn(t, client, server)
			server.Close()
		} else {
			assert.ErrorIs(t, err, net.ErrClosed, "the socket may have been taken")
			client.SetDeadline(time.Now().Add(stuck))
			_, err = client.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		}
		client.Close()
	}
}

// goesOn checks that both directions of a connection are there.
func goesOn(t *testing.T, client, server net.Conn) {
	t.Helper()
	for _, c := range [][2]net.Conn{{client, server}, {server, client}} {
		require.NoError(t, c[1].SetDeadline(time.Now().Add(stuck)))
		_, err := c[0].Write([]byte("still"))
		require.NoError(t, err)
		b := make([]byte, 5)
		_, err = io.ReadFull(c[1], b)
		require.NoError(t, err)
		require.Equal(t, "still", string(b))
	}
}

// A connection that the other process does not take is here as it was, and the error says whether it is.
func TestSendConnComesBack(t *testing.T) {
	const no = "\x07\x00not now"
	sw := newSwitch(t, true)
	for _, p := range []path{{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}, fallbackPath(t)} {
		for name, c := range map[string]struct {
			other func(there *net.UnixConn, server net.Conn) // the other process
			want  error
			text  string
			lost  bool
		}{
			"declined": {func(there *net.UnixConn, _ net.Conn) {
				io.ReadFull(there, make([]byte, 5))
				there.Write([]byte(no))
				io.Copy(io.Discard, there)
			}, nil, "the receiver: not now", false},
			"gone":    {func(*net.UnixConn, net.Conn) {}, syscall.EPIPE, "broken pipe", false},
			"is gone": {func(there *net.UnixConn, _ net.Conn) { io.ReadFull(there, make([]byte, 5)) }, nil, "", false},
			"has dropped the socket": {func(there *net.UnixConn, server net.Conn) {
				io.ReadFull(there, make([]byte, 5))
				if tc, ok := server.(*net.TCPConn); ok {
					tc.SetLinger(0) // which another process does through its copy
				}
			}, nil, "", false},
			"closed here meanwhile": {func(there *net.UnixConn, server net.Conn) {
				io.ReadFull(there, make([]byte, 5))
				server.Close()
			}, net.ErrClosed, "", true},
		} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				client, server, err := p.connect("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer client.Close()
				defer server.Close()
				_, err = client.Write([]byte("unread"))
				require.NoError(t, err)
				require.NoError(t, server.SetReadDeadline(past))
				u, file := socketPair(t)
				fc, err := net.FileConn(file)
				require.NoError(t, err)
				file.Close()
				there := fc.(*net.UnixConn)
				over := make(chan struct{})
				go func() {
					defer close(over)
					c.other(there, server)
					there.Close()
				}()
				if name == "gone" {
					<-over
				}
				err = sannet.SendConn(context.Background(), u, server)
				u.Close()
				<-over
				require.Error(t, err)
				if c.want != nil {
					assert.ErrorIs(t, err, c.want)
				}
				assert.ErrorContains(t, err, c.text)
				var oe *net.OpError
				require.ErrorAs(t, err, &oe)
				assert.Equal(t, "handover", oe.Op)
				assert.Equal(t, server.LocalAddr(), oe.Source)
				if c.lost {
					_, err = server.Read(make([]byte, 1))
					assert.ErrorIs(t, err, net.ErrClosed)
					return
				}
				assert.NotErrorIs(t, err, net.ErrClosed)
				b := make([]byte, 6)
				_, err = server.Read(b)
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "also the deadline is as it was")
				require.NoError(t, server.SetReadDeadline(time.Time{}))
				_, err = io.ReadFull(server, b)
				require.NoError(t, err)
				assert.Equal(t, "unread", string(b))
				goesOn(t, client, server)
				// Closing is not a reset.
				require.NoError(t, server.Close())
				_, err = client.Read(b)
				assert.Equal(t, io.EOF, err)
			})
		}
	}
}

// A connection with too much unread data is not sent, and goes on here.
func TestSendConnTooLong(t *testing.T) {
	defer sannet.LimitPassed(1000)()
	sw := newSwitch(t, true)
	client, server, err := (path{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}).connect("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer client.Close()
	defer server.Close()
	_, err = client.Write(make([]byte, 1000))
	require.NoError(t, err)
	u, there := socketPair(t)
	defer there.Close()
	err = sannet.SendConn(context.Background(), u, server)
	require.ErrorIs(t, err, syscall.EMSGSIZE)
	require.NotErrorIs(t, err, net.ErrClosed)
	_, err = io.ReadFull(server, make([]byte, 1000))
	require.NoError(t, err)
	goesOn(t, client, server)
	require.NoError(t, unix.Shutdown(int(there.Fd()), unix.SHUT_WR))
	b := make([]byte, 1)
	n, _, err := unix.Recvfrom(int(there.Fd()), b, unix.MSG_DONTWAIT)
	assert.True(t, n <= 0 && err != nil, "nothing was sent")
}

// Nothing is left of many hand-overs: no descriptor, and at the end of the package no goroutine.
func TestHandoverLeavesNothing(t *testing.T) {
	sw := newSwitch(t, true)
	client, server, err := (path{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}).connect("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ends := []net.Conn{client, server}
	d := sannet.Dialer{Switch: sw}
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	var before int
	for i := range 200 {
		state, err := ends[i%2].(*sannet.Conn).Handover(context.Background())
		require.NoError(t, err)
		ends[i%2], err = d.Resume(context.Background(), state)
		require.NoError(t, err)
		if i == 20 {
			before = descriptors()
		}
	}
	_, err = ends[0].Write([]byte("still"))
	require.NoError(t, err)
	_, err = io.ReadFull(ends[1], make([]byte, 5))
	require.NoError(t, err)
	for deadline := time.Now().Add(stuck); descriptors() > before+2; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d descriptors, there were %d", descriptors(), before)
	}
	for _, c := range ends {
		c.Close()
	}
}
