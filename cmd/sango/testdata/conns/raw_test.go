package conns

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func raw(t *testing.T, c syscall.Conn) syscall.RawConn {
	t.Helper()
	return must[syscall.RawConn](t)(c.SyscallConn())
}

// option reads an option of the connection's socket.
func option(t *testing.T, c syscall.Conn, level, num int) (n int) {
	t.Helper()
	var err error
	cerr := raw(t, c).Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), level, num) })
	if err = errors.Join(cerr, err); err != nil {
		t.Fatal(err)
	}
	return n
}

func setOption(t *testing.T, c syscall.Conn, level, num, value int) {
	t.Helper()
	var err error
	cerr := raw(t, c).Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, num, value) })
	if err = errors.Join(cerr, err); err != nil {
		t.Fatal(err)
	}
}

const userTimeout = 18 // TCP_USER_TIMEOUT

// As grpc-go does with its keep-alive.
func TestOptionsReadBack(t *testing.T) {
	a, b := pair(t)
	equal(t, option(t, a, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE), 1)
	equal(t, option(t, a, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE), 15)
	keep := net.KeepAliveConfig{Enable: true, Idle: 40 * time.Second, Interval: 5 * time.Second, Count: 3}
	if err := a.SetKeepAliveConfig(keep); err != nil {
		t.Fatal(err)
	}
	equal(t, option(t, a, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE), 40)
	equal(t, option(t, a, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL), 5)
	equal(t, option(t, a, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT), 3)
	setOption(t, a, syscall.IPPROTO_TCP, userTimeout, 20000)
	equal(t, option(t, a, syscall.IPPROTO_TCP, userTimeout), 20000)
	if err := a.SetKeepAlive(false); err != nil {
		t.Fatal(err)
	}
	equal(t, option(t, a, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE), 0)
	setOption(t, b, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 0)
	equal(t, option(t, b, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE), 0)
	send(t, a, "still here")
	receive(t, b, "still here")
}

var errUnexpected = errors.New("unexpected read from socket")

// check looks whether a connection of a pool can be used again, as drivers for Redis and MySQL do.
func check(t *testing.T, c syscall.Conn) (err error) {
	t.Helper()
	rerr := raw(t, c).Read(func(fd uintptr) bool {
		var b [1]byte
		n, rerr := syscall.Read(int(fd), b[:])
		switch {
		case n == 0 && rerr == nil:
			err = io.EOF
		case n > 0:
			err = errUnexpected
		case rerr == syscall.EAGAIN || rerr == syscall.EWOULDBLOCK:
		default:
			err = rerr
		}
		return true
	})
	if rerr != nil {
		return rerr
	}
	return err
}

func TestPoolCheck(t *testing.T) {
	a, b := pair(t)
	for range 3 {
		if err := check(t, a); err != nil {
			t.Fatal(err)
		}
		send(t, a, "ask")
		receive(t, b, "ask")
		send(t, b, "answer")
		receive(t, a, "answer")
	}
	b.Close()
	eventually(t, func() bool { return check(t, a) == io.EOF })
}

func TestPoolCheckReset(t *testing.T) {
	a, b := pair(t)
	b.SetLinger(0)
	b.Close()
	eventually(t, func() bool { return errors.Is(check(t, a), syscall.ECONNRESET) })
}

func TestPoolCheckData(t *testing.T) {
	a, b := pair(t)
	send(t, b, "not asked for")
	eventually(t, func() bool { return check(t, a) == errUnexpected })
	receive(t, a, "ot asked for") // it took a byte
}

func TestPoolCheckClosed(t *testing.T) {
	a, _ := pair(t)
	rc := raw(t, a)
	a.Close()
	if err := rc.Read(func(uintptr) bool { return true }); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// eventually waits for what has to become true by itself.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal("it does not come true")
}

func TestRawReadWaits(t *testing.T) {
	a, b := pair(t)
	got := make(chan string)
	go func() {
		var s string
		raw(t, a).Read(func(fd uintptr) bool {
			p := make([]byte, 100)
			n, err := syscall.Read(int(fd), p)
			if err == syscall.EAGAIN {
				return false
			}
			s = string(p[:n])
			return true
		})
		got <- s
	}()
	send(t, b, "raw")
	if s := <-got; s == "" || !strings.HasPrefix("raw", s) {
		t.Fatalf("%q", s)
	}
}

func TestRawWrite(t *testing.T) {
	a, b := pair(t)
	send(t, a, "one ")
	err := raw(t, a).Write(func(fd uintptr) bool {
		syscall.Write(int(fd), []byte("two "))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	send(t, a, "three")
	receive(t, b, "one two three")
	send(t, b, "back")
	receive(t, a, "back")
}

// A program takes a copy of the descriptor while data are under way in both directions.
func TestFile(t *testing.T) {
	a, b := pair(t)
	send(t, a, "before ")
	send(t, b, "waiting ")
	f := must[*os.File](t)(a.File())
	defer f.Close()
	c := must[net.Conn](t)(net.FileConn(f))
	defer c.Close()
	send(t, c, "copy ")
	send(t, a, "after")
	receive(t, b, "before copy after")
	send(t, b, "data")
	receive(t, c, "waiting")
	receive(t, a, " data")
	c.Close()
	f.Close()
	a.CloseWrite()
	if s := must[[]byte](t)(io.ReadAll(b)); len(s) > 0 {
		t.Fatalf("%q", s)
	}
	send(t, b, "last")
	b.Close()
	if s := string(must[[]byte](t)(io.ReadAll(a))); s != "last" {
		t.Fatalf("%q", s)
	}
}

// A Read that waits while a copy is taken goes on, and nothing is lost or comes twice.
func TestFileWhileReading(t *testing.T) {
	a, b := pair(t)
	got := make(chan string)
	go func() {
		p := make([]byte, 3)
		n, err := a.Read(p)
		if err != nil {
			t.Error(err)
		}
		s := string(p[:n])
		for len(s) < 10 {
			n, err := a.Read(p)
			if err != nil {
				t.Error(err)
				break
			}
			s += string(p[:n])
		}
		got <- s
	}()
	time.Sleep(10 * time.Millisecond) // it does not matter whether Read has begun
	f := must[*os.File](t)(a.File())
	defer f.Close()
	send(t, b, "01234")
	send(t, b, "56789")
	equal(t, <-got, "0123456789")
}

func TestFileAfterEnds(t *testing.T) {
	a, b := pair(t)
	send(t, b, "rest")
	b.CloseWrite()
	a.CloseWrite()
	f := must[*os.File](t)(a.File())
	defer f.Close()
	if s := string(must[[]byte](t)(io.ReadAll(a))); s != "rest" {
		t.Fatalf("%q", s)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
}

func TestFileDeadline(t *testing.T) {
	a, _ := pair(t)
	a.SetReadDeadline(time.Unix(1, 0))
	f := must[*os.File](t)(a.File())
	defer f.Close()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestFileReset(t *testing.T) {
	a, b := pair(t)
	f := must[*os.File](t)(a.File())
	f.Close()
	b.SetLinger(0)
	b.Close()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

func TestFileClosed(t *testing.T) {
	a, _ := pair(t)
	a.Close()
	if _, err := a.File(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// A function that sees the descriptor may use the connection.
func TestControlCallsBack(t *testing.T) {
	a, _ := pair(t)
	err := raw(t, a).Control(func(fd uintptr) {
		if err := a.SetKeepAlivePeriod(50 * time.Second); err != nil {
			t.Error(err)
		}
		n, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		if err != nil || n != 50 {
			t.Error(n, err)
		}
		a.SetDeadline(time.Now().Add(time.Minute))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever is called while a copy of the descriptor is taken comes to something.
func TestFileRaces(t *testing.T) {
	for range 30 {
		a, b := pair(t)
		done := make(chan struct{}, 5)
		for _, f := range []func(){
			func() {
				if f, err := a.File(); err == nil {
					f.Close()
				}
			},
			func() { a.SetReadDeadline(time.Now()) },
			func() { a.Read(make([]byte, 1)) },
			func() { a.CloseWrite() },
			func() { raw(t, a).Control(func(uintptr) {}) },
		} {
			go func() { f(); done <- struct{}{} }()
		}
		for range cap(done) {
			<-done
		}
		if _, err := io.ReadAll(b); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFileOrClose(t *testing.T) {
	for range 30 {
		a, b := pair(t)
		go func() {
			if f, err := a.File(); err == nil {
				f.Close()
			}
		}()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(b); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
}
