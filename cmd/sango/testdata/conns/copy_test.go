package conns

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

// The ways in which io.Copy, and what is built on it, have of connections and files.
func TestCopies(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 1<<14)
	finish := func(t *testing.T, c *net.TCPConn, n int64, err error) {
		if err != nil || n != int64(len(text)) {
			t.Error(n, err)
		}
		c.CloseWrite()
	}
	check := func(t *testing.T, c io.Reader) {
		t.Helper()
		if s := string(must[[]byte](t)(io.ReadAll(c))); s != text {
			t.Fatalf("%d bytes came, not %d", len(s), len(text))
		}
	}
	t.Run("from a file", func(t *testing.T) {
		a, b := pair(t)
		f := must[*os.File](t)(os.Open(temp(t, text)))
		defer f.Close()
		go func() { n, err := io.Copy(a, f); finish(t, a, n, err) }()
		check(t, b)
	})
	t.Run("to a file", func(t *testing.T) {
		a, b := pair(t)
		go func() { n, err := io.WriteString(a, text); finish(t, a, int64(n), err) }()
		name := temp(t, "")
		f := must[*os.File](t)(os.Create(name))
		defer f.Close()
		must[int64](t)(io.Copy(f, b))
		equal(t, string(must[[]byte](t)(os.ReadFile(name))), text)
	})
	t.Run("part of a connection to another", func(t *testing.T) {
		a, b := pair(t)
		c, d := pair(t)
		go func() { n, err := io.WriteString(a, text+"more"); finish(t, a, int64(n)-4, err) }()
		go func() { n, err := io.CopyN(c, b, int64(len(text))); finish(t, c, n, err) }()
		check(t, d)
		receive(t, b, "more")
		overSAN(t, a)
	})
	t.Run("a connection to another", func(t *testing.T) {
		a, b := pair(t)
		c, d := pair(t)
		go func() { n, err := io.WriteString(a, text); finish(t, a, int64(n), err) }()
		go func() { n, err := io.Copy(c, b); finish(t, c, n, err) }()
		check(t, d)
	})
	t.Run("buffers", func(t *testing.T) {
		a, b := pair(t)
		go func() {
			v := net.Buffers{[]byte(text[:10]), []byte(text[10:100]), []byte(text[100:])}
			n, err := v.WriteTo(a)
			finish(t, a, n, err)
		}()
		check(t, b)
	})
}
