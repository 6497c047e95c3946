package sannet_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// ends are the ways in which an end can be ended.
var ends = map[byte]struct {
	name string
	call func(conn) error
}{
	'r': {"close read", conn.CloseRead},
	'w': {"close write", conn.CloseWrite},
	'c': {"close", conn.Close},
}

// orders returns all orders of any number of the letters.
func orders(letters string) (all []string) {
	for i := range letters {
		first := letters[i : i+1]
		all = append(all, first)
		for _, more := range orders(letters[:i] + letters[i+1:]) {
			all = append(all, first+more)
		}
	}
	return all
}

// closeCases are about how connections end.
var closeCases = []likeCase{
	{"ends in every order", func(s *script) {
		for _, order := range orders("rwc") {
			for _, unread := range []string{"", "unread"} {
				s.note("%s %s", order, unread)
				c, sv := s.pair()
				if unread != "" {
					// All but the first byte.
					sv.Write([]byte("_" + unread))
					c.Read(make([]byte, 1))
				}
				c.Write([]byte("before"))
				for i := range order {
					end := ends[order[i]]
					s.failed(end.name, end.call(c))
				}
				n, err := c.Write([]byte("after"))
				s.result("write", n, err)
				if strings.ContainsAny(order, "rc") {
					got, err := io.ReadAll(c)
					s.result("read "+string(got), len(got), err)
				}
				// What the peer sees.
				if strings.ContainsAny(order, "wc") {
					got, err := io.ReadAll(sv)
					s.result("peer: read "+string(got), len(got), err)
				}
				n, err = sv.Write([]byte("back"))
				s.result("peer: write", n, err)
				deaf := strings.Contains(order, "r") && !strings.Contains(order, "c")
				if deaf && strings.Contains(order, "w") {
					// Nobody is left who could want it.
					_, err := fill(sv)
					s.failed("peer: write in the end", err)
				}
				s.failed("peer: close write", sv.CloseWrite())
				if !strings.ContainsAny(order, "rc") {
					got, err := io.ReadAll(c)
					s.result("read "+string(got), len(got), err)
				}
				if deaf && strings.Contains(order, "w") {
					for range 2 {
						n, err := c.Read(make([]byte, 9))
						s.result("read", n, err)
					}
				}
				s.failed("peer: close", sv.Close())
				s.failed("close", c.Close())
			}
		}
	}},
	{"both end in every order", func(s *script) {
		for _, order := range orders("rwcRWC") {
			if len(order) > 3 {
				continue
			}
			c, sv := s.pair()
			s.note("%s", order)
			for i := range order {
				end := ends[order[i]|0x20]
				if order[i] >= 'a' {
					s.failed(end.name, end.call(c))
				} else {
					s.failed("peer: "+end.name, end.call(sv))
				}
				// Wait until the other one knows.
				switch order[i] {
				case 'w', 'c':
					if !strings.ContainsAny(order[:i], "C") {
						_, err := io.ReadAll(sv)
						s.failed("peer: read", err)
					}
				case 'W', 'C':
					if !strings.ContainsAny(order[:i], "c") {
						_, err := io.ReadAll(c)
						s.failed("read", err)
					}
				}
			}
			c.Close()
			sv.Close()
		}
	}},
	{"close wakes everybody", func(s *script) {
		c, sv := s.pair()
		var waits []func()
		for range 2 {
			waits = append(waits, s.park(func(s *script) {
				n, err := c.Read(make([]byte, 1))
				s.result("read", n, err)
			}), s.park(func(s *script) {
				_, err := fill(c)
				s.failed("write", err)
			}))
		}
		s.failed("close", c.Close())
		for _, wait := range waits {
			wait()
		}
		_, err := io.Copy(io.Discard, sv)
		s.failed("peer: read", err)
	}},
	{"close read wakes every read", func(s *script) {
		c, _ := s.pair()
		var waits []func()
		for range 3 {
			waits = append(waits, s.park(func(s *script) {
				n, err := c.Read(make([]byte, 1))
				s.result("read", n, err)
			}))
		}
		s.failed("close read", c.CloseRead())
		for _, wait := range waits {
			wait()
		}
	}},
	{"close read during a large read", func(s *script) {
		c, sv := s.pair()
		waitRead := s.park(func(s *script) {
			_, err := io.ReadFull(c, make([]byte, 1<<20))
			s.failed("read", err)
		})
		sv.Write(make([]byte, 100_000))
		s.failed("close read", c.CloseRead())
		waitRead()
	}},
	{"concurrent ends", func(s *script) {
		for range 20 {
			c, sv := s.pair()
			var wg sync.WaitGroup
			for _, end := range ends {
				for range 2 {
					wg.Go(func() {
						if err := end.call(c); err != nil && !errors.Is(err, net.ErrClosed) {
							s.Errorf("%s: %v", end.name, err)
						}
					})
				}
			}
			wg.Wait()
			n, err := sv.Read(make([]byte, 1))
			s.result("peer: read", n, err)
		}
	}},
	{"linger", func(s *script) {
		for _, sec := range []int{-1 << 31, -2, -1, 0, 1, 1 << 15, 1 << 16, 1<<31 - 1} {
			c, sv := s.pair()
			c.Write([]byte("written"))
			s.result("set linger", sec, c.SetLinger(sec))
			s.failed("close", c.Close())
			got, err := io.ReadAll(sv)
			s.result("peer: read "+string(got), len(got), err)
		}
	}},
	{"linger while the peer does not read", func(s *script) {
		for _, sec := range []int{-1, 1} {
			c, sv := s.pair()
			c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			n, err := fill(writerOnly{c})
			s.failed("write", err)
			s.failed("set linger", c.SetLinger(sec))
			s.failed("close", c.Close())
			m, err := io.Copy(io.Discard, sv)
			s.note("all there: %t", int64(n) == m)
			s.failed("peer: read", err)
		}
	}},
	{"reset behind data", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("data"))
		sv.SetLinger(0)
		s.failed("close", sv.Close())
		b := make([]byte, 9)
		for range 3 {
			n, err := c.Read(b)
			s.result("read "+string(b[:n]), n, err)
		}
		n, err := c.Write(b)
		s.result("write", n, err)
	}},
	{"reset of a write first", func(s *script) {
		c, sv := s.pair()
		sv.SetLinger(0)
		sv.Close()
		_, err := fill(c)
		s.failed("write", err)
		n, err := c.Write([]byte("x"))
		s.result("write", n, err)
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
		s.failed("close read", c.CloseRead())
		s.failed("close", c.Close())
	}},
	{"reset after the end", func(s *script) {
		c, sv := s.pair()
		sv.CloseWrite()
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
		wait := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		sv.SetLinger(0)
		sv.Close()
		wait()
		n, err = c.Read(make([]byte, 1))
		s.result("read", n, err)
		n, err = c.Write([]byte("x"))
		s.result("write", n, err)
	}},
	{"reset of an end that has closed for writing", func(s *script) {
		c, sv := s.pair()
		c.CloseWrite()
		wait := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		sv.SetLinger(0)
		sv.Close()
		wait()
		s.failed("close write", c.CloseWrite())
		n, err := c.Read(make([]byte, 1))
		s.result("read", n, err)
	}},
}
