// Package conns has tests of connections as any program has them. They hold for TCP too: go test
// shows it.
package conns

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trace is the file that tells the paths of connections, "" where go test runs this.
var trace = os.Getenv("SANGO_TRACE")

func TestMain(m *testing.M) {
	if os.Getenv("CONNS_CHILD") != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// pathOf is how a connection that was dialed goes, as the trace tells.
func pathOf(t *testing.T, c net.Conn) string {
	t.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for line := range strings.Lines(string(text)) { // ports are used again: the last one counts
		f := strings.SplitN(strings.TrimSpace(line), " ", 6)
		if len(f) < 6 || f[1] != fmt.Sprint(os.Getpid()) || f[2] != "dial" {
			continue
		}
		// Of one over TCP the trace does not know the port.
		tcp := strings.HasPrefix(f[5], "tcp") && f[4] == c.RemoteAddr().String()
		if tcp || f[3] == c.LocalAddr().String() {
			path = f[5]
		}
	}
	if path != "" {
		return path
	}
	t.Fatalf("nothing in the trace of %v -> %v", c.LocalAddr(), c.RemoteAddr())
	return ""
}

// overSAN makes sure that the connection is over the SAN, where it can be.
func overSAN(t *testing.T, c net.Conn) {
	t.Helper()
	if trace == "" {
		return
	}
	if p := pathOf(t, c); p != "san via emu" {
		t.Fatalf("the path is %q", p)
	}
}

// overTCP makes sure that it is over TCP, and why.
func overTCP(t *testing.T, c net.Conn, why string) {
	t.Helper()
	if trace == "" {
		return
	}
	if p := pathOf(t, c); !strings.Contains(p, "tcp: ") || !strings.Contains(p, why) {
		t.Fatalf("the path is %q, not for %q", p, why)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// pair is a connection: the end that has dialed, and the other.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l := listen(t)
	a = must[net.Conn](t)(net.Dial("tcp", l.Addr().String())).(*net.TCPConn)
	b = must[*net.TCPConn](t)(l.AcceptTCP())
	t.Cleanup(func() { a.Close(); b.Close() })
	overSAN(t, a)
	return a, b
}

func send(t *testing.T, c io.Writer, s string) {
	t.Helper()
	must[int](t)(io.WriteString(c, s))
}

func receive(t *testing.T, c io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	must[int](t)(io.ReadFull(c, b))
	if string(b) != want {
		t.Fatalf("received %q, not %q", b, want)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func temp(t *testing.T, content string) string {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
