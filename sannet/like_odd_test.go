package sannet_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// oddCases are about what programs seldom do.
var oddCases = []likeCase{
	{"forgotten connections", func(s *script) {
		// In a function of its own, so that nothing here keeps the client's end.
		sv := func() net.Conn {
			c, sv, err := s.connect("tcp", "127.0.0.1:0")
			require.NoError(s, err)
			_, err = c.Write([]byte("last words"))
			require.NoError(s, err)
			return sv
		}()
		s.tidy(sv)
		collect := make(chan struct{})
		defer close(collect)
		go func() {
			for {
				select {
				case <-collect:
					return
				case <-time.After(time.Millisecond):
					runtime.GC()
				}
			}
		}()
		got, err := io.ReadAll(sv)
		s.result("read "+string(got), len(got), err)
	}},
	{"a forgotten connection that is waited on", func(s *script) {
		sv, wait := func() (net.Conn, func()) {
			c, sv, err := s.connect("tcp", "127.0.0.1:0")
			require.NoError(s, err)
			return sv, s.park(func(s *script) {
				n, err := c.Read(make([]byte, 1))
				s.result("read", n, err)
			})
		}()
		s.tidy(sv)
		for range 5 {
			runtime.GC()
		}
		sv.Write([]byte("x"))
		wait()
	}},
	{"empty writes in every state", func(s *script) {
		write := func(when string, c conn) {
			n, err := c.Write(nil)
			s.result(when, n, err)
		}
		c, sv := s.pair()
		sv.Close()
		c.Read(make([]byte, 1))
		write("peer closed", c)
		c.Write([]byte("x"))
		c, sv = s.pair()
		sv.SetLinger(0)
		sv.Close()
		c.Read(make([]byte, 1))
		write("reset, told", c)
		c, sv = s.pair()
		sv.SetLinger(0)
		sv.Close()
		for c.CloseRead() == nil { // until it is here
			runtime.Gosched()
		}
		write("reset, not told", c)
		write("and then told", c)
		c, _ = s.pair()
		c.CloseRead()
		c.CloseWrite()
		write("both ways shut", c)
	}},
	{"a file as the source", func(s *script) {
		name := filepath.Join(s.TempDir(), "file")
		sent := pattern(1 << 20)
		require.NoError(s, os.WriteFile(name, sent, 0o600))
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			f, err := os.Open(name)
			require.NoError(s, err)
			defer f.Close()
			n, err := c.ReadFrom(f)
			s.result("from a file", n, err)
			n, err = c.ReadFrom(f)
			s.result("from its end", n, err)
			f.Seek(100, io.SeekStart)
			n, err = io.Copy(c, io.LimitReader(f, 1000))
			s.result("a part", n, err)
			at, err := f.Seek(0, io.SeekCurrent)
			s.result("is now at", at, err)
			c.CloseWrite()
		})
		got, err := io.ReadAll(sv)
		s.failed("read", err)
		wait()
		s.note("same: %t", bytes.Equal(got, slices.Concat(sent, sent[100:1100])))
	}},
	{"a file as the destination", func(s *script) {
		f, err := os.Create(filepath.Join(s.TempDir(), "file"))
		require.NoError(s, err)
		defer f.Close()
		sent := pattern(1 << 20)
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			c.Write(sent)
			c.Close()
		})
		n, err := io.Copy(f, sv)
		s.result("to a file", n, err)
		wait()
		got, err := os.ReadFile(f.Name())
		s.note("same: %t %v", bytes.Equal(got, sent), err)
	}},
	{"copies that are cut short", func(s *script) {
		for what, end := range map[string]func(c, sv conn){
			"close":       func(c, sv conn) { c.Close() },
			"close read":  func(c, sv conn) { c.CloseRead() },
			"peer closes": func(c, sv conn) { sv.Close() },
			"peer resets": func(c, sv conn) { sv.SetLinger(0); sv.Close() },
		} {
			c, sv := s.pair()
			child := s.park(func(s *script) {
				n, err := c.WriteTo(writerOnly{io.Discard})
				s.result(what+": write to", n, err)
			})
			end(c, sv)
			child()
			slices.Sort(s.notes)
		}
		for what, end := range map[string]func(c, sv conn){
			"close":       func(c, sv conn) { c.Close() },
			"close write": func(c, sv conn) { c.CloseWrite() },
		} {
			c, _ := s.pair()
			child := s.park(func(s *script) {
				_, err := c.ReadFrom(readerOnly{bytes.NewReader(zeros(64 << 20))})
				s.failed(what+": read from", err)
			})
			end(c, nil)
			child()
			slices.Sort(s.notes)
		}
	}},
	{"odd sizes of buffers", func(s *script) {
		c, sv := s.pair()
		for _, n := range []int{-1, -1 << 31, 1, 1<<31 - 1} {
			s.result("read buffer", n, c.SetReadBuffer(n))
			s.result("write buffer", n, c.SetWriteBuffer(n))
			size := 200_000
			if n == 1 {
				size = 75_000 // more than fits: TCP takes 200 ms for every 4 KiB then
			}
			wait := s.park(func(s *script) {
				n, err := sv.Write(pattern(size))
				s.result("write", n, err)
			})
			got := make([]byte, size)
			m, err := io.ReadFull(c, got)
			s.result("read", m, err)
			wait()
			s.note("same: %t", bytes.Equal(got, pattern(size)))
		}
	}},
	{"a second dial from the same address", func(s *script) {
		l, err := s.listen("tcp", "127.0.0.1:0")
		require.NoError(s, err)
		s.tidy(l)
		c, err := s.dial(context.Background(), "tcp", l.Addr().String())
		require.NoError(s, err)
		s.tidy(c)
		s.name(c.LocalAddr(), "CLIENT")
		s.name(l.Addr(), "SERVER")
		again, err := s.dialWith(context.Background(), sannet.Dialer{LocalAddr: c.LocalAddr()}, "tcp", l.Addr().String())
		if err == nil {
			again.Close()
		}
		s.failed("dial", err)
	}},
	{"listen again while connections are there", func(s *script) {
		c, sv := s.pair()
		l, err := s.listen("tcp", sv.LocalAddr().String())
		s.failed("listen", err)
		if err != nil {
			return
		}
		s.tidy(l)
		next, err := s.dial(context.Background(), "tcp", l.Addr().String())
		s.failed("dial", err)
		nsv, err := l.Accept()
		s.failed("accept", err)
		s.tidy(next, nsv)
		next.Write([]byte("new"))
		c.Write([]byte("old"))
		b := make([]byte, 3)
		n, err := io.ReadFull(nsv, b)
		s.result("read "+string(b), n, err)
		n, err = io.ReadFull(sv, b)
		s.result("read "+string(b), n, err)
	}},
	{"many dials, then accepts in order", func(s *script) {
		l, err := s.listen("tcp", "127.0.0.1:0")
		require.NoError(s, err)
		s.tidy(l)
		const many = 200
		for i := range many {
			c, err := s.dial(context.Background(), "tcp", l.Addr().String())
			require.NoError(s, err)
			s.tidy(c)
			_, err = c.Write([]byte{byte(i)})
			require.NoError(s, err)
		}
		peers := map[string]bool{}
		for i := range many {
			sv, err := l.Accept()
			require.NoError(s, err)
			s.tidy(sv)
			b := make([]byte, 1)
			_, err = io.ReadFull(sv, b)
			require.NoError(s, err)
			if b[0] != byte(i) {
				s.note("%d instead of %d", b[0], i)
			}
			peers[sv.RemoteAddr().String()] = true
		}
		s.note("%d peers", len(peers))
	}},
	{"single bytes that nobody reads", func(s *script) {
		c, sv := s.pair()
		c.SetWriteDeadline(time.Now().Add(20 * time.Second))
		for range 20_000 {
			if n, err := c.Write([]byte{1}); err != nil {
				s.result("write", n, err)
				return
			}
		}
		c.CloseWrite()
		n, err := io.Copy(io.Discard, sv)
		s.result("read", n, err)
	}},
	{"read leaves the rest of the slice alone", func(s *script) {
		c, sv := s.pair()
		for _, n := range []int{1, 1000, 100_000} {
			got := bytes.Repeat([]byte{0xaa}, 1<<20)
			wait := s.park(func(s *script) {
				m, err := c.Read(got)
				s.note("%v %t", err, m > 0 && m <= n)
				for m < n {
					k, err := c.Read(got[m:])
					if m += k; err != nil {
						s.failed("read", err)
						break
					}
				}
			})
			sv.Write(pattern(n))
			wait()
			s.note("same: %t, rest: %t", bytes.Equal(got[:n], pattern(n)), bytes.Count(got[n:], []byte{0xaa}) == len(got)-n)
		}
	}},
	{"the same slice at both ends", func(s *script) {
		c, sv := s.pair()
		b := bytes.Clone(pattern(1 << 20))
		wait := s.park(func(s *script) {
			n, err := c.Write(b)
			s.result("write", n, err)
		})
		got := make([]byte, len(b))
		_, err := io.ReadFull(sv, got)
		s.failed("read", err)
		wait()
		clear(b)
		s.note("same: %t", bytes.Equal(got, pattern(1<<20)))
	}},
	{"write to itself", func(s *script) {
		// An echo of one connection through io.Copy, which ends by the peer's CloseWrite.
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			n, err := io.Copy(sv, sv)
			s.result("copy", n, err)
			s.failed("close write", sv.CloseWrite())
		})
		go func() {
			c.Write(pattern(1 << 20))
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		s.failed("read", err)
		wait()
		s.note("same: %t", bytes.Equal(got, pattern(1<<20)))
	}},
	{"reads and writes of many goroutines, then a reset", func(s *script) {
		c, sv := s.pair()
		var waits []func()
		for range 4 {
			waits = append(waits, s.park(func(s *script) {
				n, err := c.Read(make([]byte, 1))
				s.note("%d %t", n, err != nil)
			}))
		}
		sv.SetLinger(0)
		sv.Close()
		for _, wait := range waits {
			wait()
		}
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Write([]byte("x"))
		s.result("write", n, err)
	}},
	{"errors told twice", func(s *script) {
		// Who is told of a reset, and what everybody else sees: the write first, and then reads.
		for _, first := range []string{"read", "write", "close write", "set"} {
			c, sv := s.pair()
			c.Write([]byte("unread"))
			sv.Read(make([]byte, 1))
			sv.Close()
			wait := s.park(func(s *script) { // until the reset is here
				for c.CloseRead() == nil {
					runtime.Gosched()
				}
			})
			wait()
			call := map[string]func(){
				"read":        func() { n, err := c.Read(make([]byte, 1)); s.result("read", n, err) },
				"write":       func() { n, err := c.Write([]byte("x")); s.result("write", n, err) },
				"close write": func() { s.failed("close write", c.CloseWrite()) },
				"set":         func() { s.failed("set", c.SetNoDelay(true)) },
			}
			s.note("%s first", first)
			call[first]()
			for _, name := range []string{"read", "write", "close write", "read", "write"} {
				call[name]()
			}
		}
	}},
	{"multiple readers of limited readers", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("0123456789"))
		sv.CloseWrite()
		for range 4 {
			got, err := io.ReadAll(io.LimitReader(c, 3))
			s.result("read "+string(got), len(got), err)
		}
	}},
	{"strings.Reader of many parts", func(s *script) {
		c, sv := s.pair()
		var parts []io.Reader
		for range 100 {
			parts = append(parts, strings.NewReader("part "))
		}
		n, err := c.ReadFrom(io.MultiReader(parts...))
		s.result("read from", n, err)
		c.CloseWrite()
		got, err := io.ReadAll(sv)
		s.result("read", len(got), err)
	}},
}

// oddSequences are orders of events in which it matters what an end knows already.
var oddSequences = []likeCase{
	{"a close that crosses data", func(s *script) {
		for range 20 {
			c, sv := s.pair()
			c.Write([]byte("crossing"))
			sv.Close()
			// Whether it has arrived before the close decides over a reset: wait for what both lead to.
			fill(c)
			_, err := c.Write([]byte("x"))
			s.failed("write", err)
		}
	}},
	{"half-closed for long, both ways in turn", func(s *script) {
		c, sv := s.pair()
		c.CloseWrite()
		_, err := sv.Read(make([]byte, 1))
		s.failed("peer: read", err)
		for range 3 {
			sv.Write(pattern(100_000))
			got := make([]byte, 100_000)
			n, err := io.ReadFull(c, got)
			s.result("read", n, err)
			n, err = sv.Read(got)
			s.result("peer: read", n, err)
			n, err = c.Write(got)
			s.result("write", n, err)
		}
		s.failed("peer: close", sv.Close())
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		s.failed("close write", c.CloseWrite())
		s.failed("close read", c.CloseRead())
		s.failed("close", c.Close())
	}},
	{"linger 0 and unread data at both ends", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("one"))
		sv.Write([]byte("two"))
		c.Read(make([]byte, 1))
		sv.Read(make([]byte, 1))
		c.SetLinger(0)
		sv.SetLinger(0)
		s.failed("close", c.Close())
		got, err := io.ReadAll(sv)
		s.result("peer: read "+string(got), len(got), err)
		s.failed("peer: close", sv.Close())
	}},
	{"linger set and unset", func(s *script) {
		c, sv := s.pair()
		c.SetLinger(0)
		c.SetLinger(-1)
		c.Write([]byte("kept"))
		c.Close()
		got, err := io.ReadAll(sv)
		s.result("read "+string(got), len(got), err)
	}},
	{"linger 0 after CloseWrite", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("data"))
		c.CloseWrite()
		got, err := io.ReadAll(sv)
		s.result("read "+string(got), len(got), err)
		c.SetLinger(0)
		c.Close()
		for sv.CloseRead() == nil {
			runtime.Gosched()
		}
		n, err := sv.Write([]byte("x"))
		s.result("write", n, err)
		n, err = sv.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"linger 0 after both have closed for writing", func(s *script) {
		c, sv := s.pair()
		c.CloseWrite()
		sv.CloseWrite()
		c.Read(make([]byte, 1))
		sv.Read(make([]byte, 1))
		c.SetLinger(0)
		s.failed("close", c.Close())
		n, err := sv.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = sv.Write([]byte("x"))
		s.result("write", n, err)
		s.failed("close write", sv.CloseWrite())
		s.failed("close", sv.Close())
	}},
	{"shutdowns again and again", func(s *script) {
		c, sv := s.pair()
		for range 3 {
			s.failed("close write", c.CloseWrite())
			s.failed("close read", c.CloseRead())
		}
		n, err := sv.Read(make([]byte, 1))
		s.result("peer: read", n, err)
		for range 3 {
			s.failed("peer: close write", sv.CloseWrite())
			s.failed("peer: close read", sv.CloseRead())
		}
	}},
	{"deadlines survive a shutdown", func(s *script) {
		c, sv := s.pair()
		c.SetReadDeadline(past)
		c.CloseWrite()
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		sv.Close()
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
		c.SetReadDeadline(time.Time{})
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"deadline while reset", func(s *script) {
		c, sv := s.pair()
		sv.SetLinger(0)
		sv.Close()
		for c.CloseRead() == nil {
			runtime.Gosched()
		}
		c.SetDeadline(past)
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Write([]byte("x"))
		s.result("write", n, err)
		c.SetDeadline(time.Time{})
		n, err = c.Write([]byte("x"))
		s.result("write", n, err)
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"a write that is cut short, and the peer's view of it", func(s *script) {
		for _, how := range []string{"deadline", "close write"} {
			c, sv := s.pair()
			wait := s.park(func(s *script) {
				n, err := c.Write(pattern(10 << 20))
				s.note("short: %t", n < 10<<20)
				s.failed("write", err)
				m, rerr := c.Read(make([]byte, 8))
				s.result("read", m, rerr)
				s.note("total: %d", 0*n)
			})
			switch how {
			case "deadline":
				c.SetWriteDeadline(past)
			case "close write":
				c.CloseWrite()
			}
			sv.Write([]byte("go"))
			wait()
			if how == "deadline" {
				c.CloseWrite()
			}
			got, err := io.ReadAll(sv)
			s.failed("peer: read", err)
			s.note("a prefix: %t", bytes.Equal(got, pattern(10 << 20)[:len(got)]))
		}
	}},
	{"reads into nothing while data and the end are there", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("x"))
		sv.Close()
		n, err := c.Read(nil)
		s.result("read nothing", n, err)
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Read(nil)
		s.result("read nothing", n, err)
		n, err = c.Read([]byte{})
		s.result("read nothing", n, err)
	}},
	{"copy to a peer that is gone", func(s *script) {
		c, sv := s.pair()
		sv.SetLinger(0)
		sv.Close()
		n, err := io.Copy(c, readerOnly{bytes.NewReader(zeros(64 << 20))})
		s.note("%t", n < 64<<20)
		s.note("%t", err != nil)
		n, err = io.Copy(io.Discard, c)
		s.result("copy", n, err)
	}},
	{"addresses after everything", func(s *script) {
		c, sv := s.pair()
		la, ra := c.LocalAddr(), c.RemoteAddr()
		sv.SetLinger(0)
		sv.Close()
		c.Read(make([]byte, 1))
		c.Close()
		s.note("%t %t", c.LocalAddr() == la, c.RemoteAddr() == ra)
		s.note("%v %v", sv.LocalAddr() != nil, sv.RemoteAddr() != nil)
	}},
	{"a large write to a peer that resets", func(s *script) {
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			n, err := c.Write(zeros(64 << 20))
			s.note("short: %t", n < 64<<20)
			s.failed("write", err)
			n, err = c.Write([]byte("x"))
			s.result("write", n, err)
			n, err = c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		io.ReadFull(sv, make([]byte, 1<<20))
		sv.SetLinger(0)
		sv.Close()
		wait()
	}},
	{"a large write to a peer that closes for reading and writing", func(s *script) {
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
			n, err := c.Write([]byte("x"))
			s.result("write", n, err)
			n, err = c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		io.ReadFull(sv, make([]byte, 100)) // so that there is more unread
		sv.Close()
		wait()
	}},
	{"unread data, CloseWrite and waiting for the peer", func(s *script) {
		// What many protocols do at their end.
		c, sv := s.pair()
		c.Write([]byte("request"))
		b := make([]byte, 7)
		io.ReadFull(sv, b)
		sv.Write(pattern(300_000))
		sv.CloseWrite()
		go func() { io.Copy(io.Discard, sv); sv.Close() }()
		n, err := io.Copy(io.Discard, c)
		s.result("read", n, err)
		s.failed("close", c.Close())
	}},
}
