package sannet_test

import (
	"io"
	"strings"
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
}
