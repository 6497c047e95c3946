package sannet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// past is a deadline that has passed, future one that will not in a test.
var past = time.Unix(1, 0)

func future() time.Time { return time.Now().Add(time.Hour) }

// likeCase runs over every path, and what it writes down has to be the same on all.
type likeCase struct {
	name string
	run  func(*script)
}

// connCases are about connections.
var connCases = []likeCase{
	{"addresses", func(s *script) {
		c, sv := s.pair()
		for _, end := range []conn{c, sv} {
			for _, a := range []net.Addr{end.LocalAddr(), end.RemoteAddr()} {
				tcp, ok := a.(*net.TCPAddr)
				require.True(s, ok)
				s.note("%s %v %d %q", tcp.Network(), tcp.IP, len(tcp.IP), tcp.Zone)
			}
			s.note("shared: %t %t", end.LocalAddr() == end.LocalAddr(), end.RemoteAddr() == end.RemoteAddr())
		}
		s.note("mirrored: %t %t", c.LocalAddr().String() == sv.RemoteAddr().String(),
			c.RemoteAddr().String() == sv.LocalAddr().String())
		c.Close()
		s.note("after close: %t", c.LocalAddr() != nil && c.RemoteAddr() != nil)
	}},
	{"write and read", func(s *script) {
		c, sv := s.pair()
		n, err := c.Write([]byte("hello"))
		s.result("write", n, err)
		b := make([]byte, 3)
		n, err = sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
		n, err = sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
		n, err = sv.Write([]byte("back"))
		s.result("write", n, err)
		b = make([]byte, 100)
		n, err = c.Read(b)
		s.result("read "+string(b[:n]), n, err)
	}},
	{"zero length", func(s *script) {
		c, sv := s.pair()
		calls := func(when string) {
			n, err := c.Read(nil)
			s.result(when+": read nothing", n, err)
			n, err = c.Write([]byte{})
			s.result(when+": write nothing", n, err)
		}
		calls("fresh")
		c.SetDeadline(past)
		calls("past deadline")
		c.SetDeadline(time.Time{})
		// Nothing was sent, so that this is the first byte.
		c.Write([]byte("x"))
		b := make([]byte, 10)
		n, err := sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
		sv.CloseWrite()
		_, err = c.Read(b)
		s.failed("read", err)
		calls("end of input")
		c.CloseWrite()
		calls("closed for writing")
		c.Close()
		calls("closed")
	}},
	{"read deadline", func(s *script) {
		c, sv := s.pair()
		b := make([]byte, 10)
		s.failed("set past", c.SetReadDeadline(past))
		for range 2 {
			n, err := c.Read(b)
			s.result("read past", n, err)
		}
		// Data that is there does not help.
		sv.Write([]byte("data"))
		n, err := c.Read(b)
		s.result("read past with data", n, err)
		n, err = c.Write([]byte("w"))
		s.result("write", n, err)
		s.failed("clear", c.SetReadDeadline(time.Time{}))
		n, err = c.Read(b)
		s.result("read "+string(b[:n]), n, err)
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		for range 2 {
			n, err = c.Read(b)
			s.result("read until deadline", n, err)
		}
		s.failed("set future", c.SetReadDeadline(future()))
		sv.Write([]byte("more"))
		n, err = c.Read(b)
		s.result("read "+string(b[:n]), n, err)
	}},
	{"read deadline while parked", func(s *script) {
		c, sv := s.pair()
		b := make([]byte, 10)
		for _, set := range []func(time.Time) error{c.SetReadDeadline, c.SetDeadline} {
			// Past, near, and earlier than the one before.
			for _, deadline := range []func() time.Time{
				func() time.Time { return past },
				func() time.Time { return time.Now().Add(time.Millisecond) },
				func() time.Time { c.SetReadDeadline(future()); return past },
			} {
				wait := s.park(func(s *script) {
					n, err := c.Read(b)
					s.result("read", n, err)
				})
				s.failed("set", set(deadline()))
				wait()
				set(time.Time{})
			}
		}
		// A write deadline, and one that is moved away, do not wake.
		c.SetReadDeadline(time.Now().Add(time.Hour))
		wait := s.park(func(s *script) {
			n, err := c.Read(b)
			s.result("read "+string(b[:n]), n, err)
		})
		c.SetWriteDeadline(past)
		c.SetReadDeadline(future().Add(time.Hour))
		c.SetReadDeadline(time.Time{})
		sv.Write([]byte("used on"))
		wait()
	}},
	{"write deadline", func(s *script) {
		c, sv := s.pair()
		s.failed("set past", c.SetWriteDeadline(past))
		for range 2 {
			n, err := c.Write([]byte("lost"))
			s.result("write past", n, err)
		}
		sv.Write([]byte("r"))
		b := make([]byte, 10)
		n, err := c.Read(b)
		s.result("read", n, err)
		s.failed("clear", c.SetWriteDeadline(time.Time{}))
		n, err = c.Write([]byte("sent"))
		s.result("write", n, err)
		n, err = sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
	}},
	{"write deadline while parked", func(s *script) {
		for _, how := range []func(conn){
			func(c conn) { c.SetWriteDeadline(past) },
			func(c conn) { c.SetDeadline(past) },
			func(c conn) { c.SetWriteDeadline(time.Now().Add(time.Millisecond)) },
		} {
			c, sv := s.pair()
			var total int
			wait := s.park(func(s *script) {
				n, err := c.Write(zeros(64 << 20))
				// A large write may be taken back whole, where the peer had not begun to fetch it.
				s.note("cut short: %t", n < 64<<20)
				s.failed("write", err)
				total = n
			})
			how(c)
			wait()
			// The connection is used on, and not a byte is lost or comes twice.
			c.SetDeadline(time.Time{})
			wait = s.park(func(s *script) {
				n, err := c.Write([]byte("used on"))
				s.result("write", n, err)
				s.failed("close", c.CloseWrite())
			})
			data, err := io.ReadAll(sv)
			s.failed("read all", err)
			wait()
			s.note("all there: %t", len(data) == total+len("used on") && bytes.HasSuffix(data, []byte("used on")))
			s.note("no other byte: %t", bytes.Count(data[:min(total, len(data))], []byte{0}) == total)
		}
	}},
	{"deadline of one direction", func(s *script) {
		c, sv := s.pair()
		c.SetReadDeadline(past)
		wait := s.park(func(s *script) {
			n, err := c.Write(zeros(32 << 20))
			s.result("write", n, err)
		})
		n, err := io.CopyN(io.Discard, sv, 32<<20)
		s.result("read", n, err)
		wait()
	}},
	{"calls on a closed connection", func(s *script) {
		c, _ := s.pair()
		s.failed("close", c.Close())
		b := make([]byte, 1)
		n, err := c.Read(b)
		s.result("read", n, err)
		n, err = c.Write(b)
		s.result("write", n, err)
		s.failed("close", c.Close())
		s.failed("close read", c.CloseRead())
		s.failed("close write", c.CloseWrite())
		s.options(c)
		s.failed("deadline", c.SetDeadline(future()))
		s.failed("read deadline", c.SetReadDeadline(past))
		s.failed("write deadline", c.SetWriteDeadline(time.Time{}))
		n64, err := c.ReadFrom(readerOnly{strings.NewReader("data")})
		s.result("read from", n64, err)
		n64, err = c.ReadFrom(strings.NewReader("data"))
		s.result("read from", n64, err)
		n64, err = c.WriteTo(writerOnly{io.Discard})
		s.result("write to", n64, err)
	}},
	{"options", func(s *script) {
		c, sv := s.pair()
		s.options(c)
		s.failed("keepalive off", c.SetKeepAlive(false))
		s.failed("period default", c.SetKeepAlivePeriod(0))
		s.failed("period unchanged", c.SetKeepAlivePeriod(-1))
		s.failed("period too long", c.SetKeepAlivePeriod(10000*time.Hour))
		s.failed("config", c.SetKeepAliveConfig(net.KeepAliveConfig{}))
		s.failed("config unchanged", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}))
		s.failed("config idle", c.SetKeepAliveConfig(net.KeepAliveConfig{Idle: 32768 * time.Second}))
		s.failed("config interval", c.SetKeepAliveConfig(net.KeepAliveConfig{Interval: 32768 * time.Second}))
		s.failed("config count", c.SetKeepAliveConfig(net.KeepAliveConfig{Count: 128}))
		s.failed("config largest", c.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: 32767 * time.Second, Interval: 32767 * time.Second, Count: 127}))
		s.failed("linger", c.SetLinger(-1))
		s.failed("read buffer", c.SetReadBuffer(0))
		s.failed("write buffer", c.SetWriteBuffer(0))
		// Small buffers, and still everything arrives.
		sv.SetReadBuffer(16 << 10)
		c.SetWriteBuffer(16 << 10)
		wait := s.park(func(s *script) {
			n, err := c.Write(make([]byte, 128<<10))
			s.result("write", n, err)
		})
		n, err := io.CopyN(io.Discard, sv, 128<<10)
		s.result("read", n, err)
		wait()
	}},
	{"close wakes read", func(s *script) {
		c, _ := s.pair()
		wait := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("close", c.Close())
		wait()
	}},
	{"close wakes write", func(s *script) {
		c, _ := s.pair()
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		s.failed("close", c.Close())
		wait()
	}},
	{"end of input", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("last"))
		s.failed("close", c.Close())
		b := make([]byte, 10)
		n, err := sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
		for range 2 {
			n, err = sv.Read(b)
			s.result("read", n, err)
		}
		s.failed("close", sv.Close())
	}},
	{"end of input wakes read", func(s *script) {
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			n, err := sv.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		c.Close()
		wait()
	}},
	{"close write", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("question"))
		s.failed("close write", c.CloseWrite())
		n, err := c.Write([]byte("x"))
		s.result("write", n, err)
		data, err := io.ReadAll(sv)
		s.result("read "+string(data), len(data), err)
		n, err = sv.Write([]byte("answer"))
		s.result("write", n, err)
		s.failed("close write again", c.CloseWrite())
		s.failed("close write", sv.CloseWrite())
		data, err = io.ReadAll(c)
		s.result("read "+string(data), len(data), err)
		s.failed("close", c.Close())
		s.failed("close", sv.Close())
	}},
	{"close write wakes write", func(s *script) {
		c, _ := s.pair()
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		s.failed("close write", c.CloseWrite())
		wait()
	}},
	{"close read", func(s *script) {
		c, sv := s.pair()
		s.failed("close read", c.CloseRead())
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Write([]byte("still"))
		s.result("write", n, err)
		b := make([]byte, 10)
		n, err = sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
		s.failed("close read again", c.CloseRead())
		s.failed("close write", c.CloseWrite())
		n, err = sv.Read(b)
		s.result("read", n, err)
		s.failed("close", c.Close())
	}},
	{"close read with data there", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("data"))
		b := make([]byte, 1)
		n, err := c.Read(b)
		s.result("read", n, err)
		s.failed("close read", c.CloseRead())
		rest, err := io.ReadAll(c)
		s.result("read "+string(rest), len(rest), err)
		s.failed("close", c.Close())
		_, err = sv.Read(b)
		s.failed("read", err)
	}},
	{"close read with unread data, then close", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("data"))
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		s.failed("close read", c.CloseRead())
		s.failed("close", c.Close())
		_, err = sv.Read(make([]byte, 1))
		s.failed("read", err)
	}},
	{"close write, then close with unread data", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("data"))
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		c.Write([]byte("last"))
		s.failed("close write", c.CloseWrite())
		got, err := io.ReadAll(sv)
		s.result("read "+string(got), len(got), err)
		s.failed("close", c.Close())
		// That the rest was not read comes too late to be seen.
		n, err = sv.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"concurrent closes", func(s *script) {
		c, sv := s.pair()
		closed := make(chan error, 8)
		for range cap(closed) {
			go func() { closed <- c.Close() }()
		}
		var first int
		for range cap(closed) {
			if err := <-closed; err == nil {
				first++
			} else {
				assert.ErrorIs(s, err, net.ErrClosed)
			}
		}
		s.note("first: %d", first)
		n, err := sv.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"close read wakes read", func(s *script) {
		c, _ := s.pair()
		wait := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("close read", c.CloseRead())
		wait()
	}},
	{"peer of close read", func(s *script) {
		c, sv := s.pair()
		c.CloseRead()
		// The peer is not told.
		n, err := sv.Write([]byte("unwanted"))
		s.result("write", n, err)
		n, err = sv.Write([]byte("unwanted"))
		s.result("write", n, err)
		c.Write([]byte("other way"))
		b := make([]byte, 10)
		n, err = sv.Read(b)
		s.result("read "+string(b[:n]), n, err)
	}},
	{"close with unread data", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("unread"))
		sv.Read(make([]byte, 1))
		s.failed("close", sv.Close())
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Write([]byte("x"))
		s.result("write", n, err)
		n, err = c.Read(make([]byte, 1))
		s.result("read again", n, err)
		s.failed("close write", c.CloseWrite())
		s.options(c)
		s.failed("close", c.Close())
	}},
	{"close with unread data wakes write", func(s *script) {
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		sv.Read(make([]byte, 1))
		s.failed("close", sv.Close())
		wait()
	}},
	{"close with linger 0", func(s *script) {
		c, sv := s.pair()
		s.failed("set linger", c.SetLinger(0))
		wait := s.park(func(s *script) {
			n, err := sv.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("close", c.Close())
		wait()
		n, err := sv.Write([]byte("x"))
		s.result("write", n, err)
	}},
	{"close with linger", func(s *script) {
		c, sv := s.pair()
		s.failed("set linger", c.SetLinger(5))
		n, err := c.Write([]byte("lingering"))
		s.result("write", n, err)
		s.failed("close", c.Close())
		data, err := io.ReadAll(sv)
		s.result("read "+string(data), len(data), err)
	}},
	{"writes to a closed peer", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("bye"))
		sv.Close()
		data, err := io.ReadAll(c)
		s.result("read "+string(data), len(data), err)
		_, err = fill(c)
		s.failed("write in the end", err)
		_, err = c.Write([]byte("x"))
		s.failed("write again", err)
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
	{"clean close after 10 MiB", func(s *script) {
		c, sv := s.pair()
		sent := pattern(10 << 20)
		wait := s.park(func(s *script) {
			n, err := c.Write(sent)
			s.result("write", n, err)
			s.failed("close", c.Close())
		})
		got, err := io.ReadAll(sv)
		s.result("read all", len(got), err)
		wait()
		s.note("same: %t", bytes.Equal(sent, got))
	}},
	{"both write before they read", func(s *script) {
		c, sv := s.pair()
		sent := pattern(1 << 20)
		both := func(end conn) func(*script) {
			return func(s *script) {
				n, err := end.Write(sent)
				s.result("write", n, err)
				got := make([]byte, len(sent))
				n, err = io.ReadFull(end, got)
				s.result("read", n, err)
				s.note("same: %t", bytes.Equal(sent, got))
			}
		}
		waitClient := s.park(both(c))
		waitServer := s.park(both(sv))
		waitClient()
		waitServer()
	}},
	{"blocked write does not stop read", func(s *script) {
		c, sv := s.pair()
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		for range 3 {
			n, err := sv.Write([]byte("through"))
			s.result("write", n, err)
			b := make([]byte, 7)
			n, err = io.ReadFull(c, b)
			s.result("read "+string(b), n, err)
		}
		c.Close()
		wait()
	}},
	{"concurrent writes stay whole", func(s *script) {
		c, sv := s.pair()
		const size, each, writers = 100_000, 10, 4
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for range each {
					_, err := c.Write(bytes.Repeat([]byte{byte('a' + w)}, size))
					assert.NoError(s, err)
				}
			})
		}
		b := make([]byte, size)
		for range writers * each {
			_, err := io.ReadFull(sv, b)
			if err != nil || bytes.Count(b, b[:1]) != size {
				s.note("torn: %v", err)
			}
		}
		wg.Wait()
	}},
	{"vectored write", func(s *script) {
		c, sv := s.pair()
		bufs := net.Buffers{[]byte("a"), nil, []byte("bc"), pattern(100_000)}
		wait := s.park(func(s *script) {
			n, err := bufs.WriteTo(c)
			s.result("write", n, err)
			c.CloseWrite()
		})
		data, err := io.ReadAll(sv)
		wait()
		s.result("read", len(data), err)
		s.note("same: %t", bytes.Equal(data, append([]byte("abc"), pattern(100_000)...)))
	}},
	{"read from", func(s *script) {
		c, sv := s.pair()
		sent := pattern(3 << 20)
		wait := s.park(func(s *script) {
			// With and without WriteTo, from a limited one, empty, and one that fails.
			n, err := c.ReadFrom(bytes.NewReader(sent))
			s.result("from bytes", n, err)
			n, err = c.ReadFrom(readerOnly{bytes.NewReader(sent)})
			s.result("from a reader", n, err)
			n, err = c.ReadFrom(io.LimitReader(bytes.NewReader(sent), 1000))
			s.result("from a limited reader", n, err)
			n, err = c.ReadFrom(strings.NewReader(""))
			s.result("from nothing", n, err)
			n, err = c.ReadFrom(io.MultiReader(strings.NewReader("part"), failing{}))
			s.result("from a failing reader", n, err)
			n, err = io.Copy(c, readerOnly{bytes.NewReader(sent)})
			s.result("copy", n, err)
			c.CloseWrite()
		})
		got, err := io.ReadAll(sv)
		s.failed("read", err)
		wait()
		s.note("same: %t", bytes.Equal(got, slices.Concat(sent, sent, sent[:1000], []byte("part"), sent)))
	}},
	{"write to", func(s *script) {
		c, sv := s.pair()
		sent := pattern(3 << 20)
		wait := s.park(func(s *script) {
			c.Write(sent)
			c.CloseWrite()
		})
		var got bytes.Buffer
		n, err := sv.WriteTo(&got)
		s.result("write to", n, err)
		n, err = sv.WriteTo(&got)
		s.result("write to at the end", n, err)
		wait()
		s.note("same: %t", bytes.Equal(got.Bytes(), sent))
	}},
	{"write to fails", func(s *script) {
		c, sv := s.pair()
		c.Write([]byte("data"))
		n, err := sv.WriteTo(failing{})
		s.result("failing writer", n, err)
		c.Write([]byte("data"))
		n, err = sv.WriteTo(short{})
		s.result("short writer", n, err)
		sv.SetReadDeadline(past)
		n, err = sv.WriteTo(writerOnly{io.Discard})
		s.result("past deadline", n, err)
		c.SetWriteDeadline(past)
		n, err = c.ReadFrom(strings.NewReader("data"))
		s.result("past deadline", n, err)
	}},
	{"copy between connections", func(s *script) {
		a, b := s.pair()
		c, d := s.pair()
		sent := pattern(3 << 20)
		wait := s.park(func(s *script) {
			n, err := io.Copy(c, b)
			s.note("copy %d %v", n, err)
			c.CloseWrite()
		})
		go func() {
			a.Write(sent)
			a.CloseWrite()
		}()
		got, err := io.ReadAll(d)
		wait()
		s.note("%v %t", err, bytes.Equal(sent, got))
	}},
}

// options calls every option.
func (s *script) options(c conn) {
	s.failed("no delay", c.SetNoDelay(true))
	s.failed("delay", c.SetNoDelay(false))
	s.failed("keepalive", c.SetKeepAlive(true))
	s.failed("keepalive period", c.SetKeepAlivePeriod(time.Minute))
	s.failed("keepalive config", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Minute}))
	s.failed("linger", c.SetLinger(1))
	s.failed("read buffer", c.SetReadBuffer(1<<16))
	s.failed("write buffer", c.SetWriteBuffer(1<<16))
}

type readerOnly struct{ io.Reader }
type writerOnly struct{ io.Writer }

type failing struct{}

func (failing) Read([]byte) (int, error)    { return 0, errors.New("broken reader") }
func (failing) Write(b []byte) (int, error) { return len(b) / 2, errors.New("broken writer") }

type short struct{}

func (short) Write(b []byte) (int, error) { return len(b) - 1, nil }

// TestLikeTCP runs every case over plain TCP and over the paths of this package, and compares.
func TestLikeTCP(t *testing.T) {
	type likePath struct {
		name string
		open func(testing.TB) path
		san  bool
	}
	paths := []likePath{{"over the SAN", sanPath, true}, {"over the fallback", fallbackPath, false}}
	if runtime.GOOS == "linux" {
		c := startChild(t)
		across := func(t testing.TB) path { return acrossPath(t, c) }
		paths = append(paths, likePath{"over the SAN, between processes", across, true})
	}
	counts := make(map[string]*[2]int64)
	for _, c := range slices.Concat(connCases, timeCases, closeCases, oddCases, oddSequences, dialCases, listenCases, localCases) {
		t.Run(c.name, func(t *testing.T) {
			run := func(newPath func(testing.TB) path) (notes string) {
				p := newPath(t)
				t.Run(p.name, func(t *testing.T) {
					s := &script{T: t, path: p, names: new(names)}
					c.run(s)
					notes = strings.Join(s.notes, "\n")
				})
				return notes
			}
			want := run(tcpPath)
			for _, p := range paths {
				dialed.take()
				assert.Equal(t, want, run(p.open), p.name)
				if counts[p.name] == nil {
					counts[p.name] = new([2]int64)
				}
				san, tcp := dialed.take()
				counts[p.name][0] += san
				counts[p.name][1] += tcp
			}
		})
	}
	for _, p := range paths {
		if n := counts[p.name]; n != nil {
			// A busy host may make TCP win a race now and then.
			assert.True(t, p.san && n[0] >= 4*n[1] || !p.san && n[0] == 0, "%s: %d connections over the SAN, %d over TCP", p.name, n[0], n[1])
		}
	}
}
