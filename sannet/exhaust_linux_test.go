package sannet_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/sannet"
)

// exhaust sets the limit of this process's descriptors to those that there are, or to what it may be.
func exhaust(on bool) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if on {
		free, err := unix.Dup(0)
		if err != nil {
			return err
		}
		unix.Close(free)
		limit.Cur = uint64(free)
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// TestNoDescriptors: a listener that has no descriptors left fails as one of net does, with an error after which a server
// goes on, and accepts what came meanwhile when there are some again.
func TestNoDescriptors(t *testing.T) {
	c := startChild(t)
	sw := newSwitch(t, true)
	run := func(name string, san bool, dial func(network, address string) (net.Conn, error)) (notes string) {
		t.Run(name, func(t *testing.T) {
			s := &script{T: t, path: path{name: name}, names: new(names)}
			l, err := c.listen(san, "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s.name(l.Addr(), "LISTENER")
			s.tidy(l)
			wait := s.park(func(s *script) { // a server waits usually
				_, err := l.Accept()
				s.failed("accept", err)
			})
			require.NoError(t, c.exhaust(true))
			defer c.exhaust(false)
			first, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			s.tidy(first)
			wait()
			for range 3 {
				_, err := l.Accept()
				s.failed("accept", err)
			}
			// Another comes meanwhile.
			second, err := dial("tcp", l.Addr().String())
			require.NoError(t, err)
			s.tidy(second)
			require.NoError(t, c.exhaust(false))
			peers := map[string]bool{first.LocalAddr().String(): true, second.LocalAddr().String(): true}
			for range 2 {
				sv, err := l.Accept()
				s.failed("accept", err)
				if err != nil {
					return
				}
				s.tidy(sv)
				s.note("known: %t", peers[sv.RemoteAddr().String()])
				sv.Write([]byte("x"))
			}
			for _, end := range []net.Conn{first, second} {
				n, err := io.ReadFull(end, make([]byte, 1))
				s.result("read", n, err)
			}
			notes = strings.Join(s.notes, "\n")
		})
		return notes
	}
	want := run("net", false, net.Dial)
	assert.Contains(t, want, "too many open files")
	assert.Contains(t, want, "temporary=true")
	assert.Equal(t, want, run("clients over TCP", true, net.Dial))
	assert.Equal(t, want, run("clients over the SAN", true, func(network, address string) (net.Conn, error) {
		return dialWith(sw)(t.Context(), sannet.Dialer{}, network, address)
	}))
}

func (c *child) exhaust(on bool) error { return c.call(0, "Exhaust", on)[0].(wireError).error() }
