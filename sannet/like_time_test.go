package sannet_test

import (
	"bytes"
	"io"
	"math"
	"strings"
	"time"
)

// timeCases are about deadlines, beyond those of a single Read or Write.
var timeCases = []likeCase{
	{"deadlines far away", func(s *script) {
		c, sv := s.pair()
		for _, at := range []time.Time{time.Unix(1<<40, 0), time.Unix(math.MaxInt64>>1, 0), time.Unix(math.MinInt64>>1, 0),
			time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Unix(0, 1)} {
			s.failed("set", c.SetDeadline(at))
			sv.Write([]byte("x"))
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
			n, err = c.Write([]byte("x"))
			s.result("write", n, err)
			c.SetDeadline(time.Time{})
			if err != nil {
				c.Read(make([]byte, 1))
			}
		}
	}},
	{"write deadline moved while parked", func(s *script) {
		c, sv := s.pair()
		c.SetWriteDeadline(future())
		wait := s.park(func(s *script) {
			n, err := c.Write(zeros(32 << 20))
			s.result("write", n, err)
			s.failed("close", c.CloseWrite())
		})
		s.failed("later", c.SetWriteDeadline(future().Add(time.Hour)))
		s.failed("earlier", c.SetWriteDeadline(future()))
		s.failed("cleared", c.SetWriteDeadline(time.Time{}))
		s.failed("of reads", c.SetReadDeadline(past))
		n, err := io.Copy(io.Discard, sv)
		s.result("read", n, err)
		wait()
	}},
	{"deadline of one of both that are parked", func(s *script) {
		c, sv := s.pair()
		waitWrite := s.park(func(s *script) {
			n, err := c.Write(zeros(32 << 20))
			s.result("write", n, err)
			s.failed("close", c.CloseWrite())
		})
		waitRead := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("read deadline", c.SetReadDeadline(past))
		waitRead()
		n, err := io.Copy(io.Discard, sv)
		s.result("peer: read", n, err)
		waitWrite()
	}},
	{"deadline of both that are parked", func(s *script) {
		c, _ := s.pair()
		waitWrite := s.park(func(s *script) {
			_, err := fill(c)
			s.failed("write", err)
		})
		waitRead := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("deadline", c.SetDeadline(past))
		waitRead()
		waitWrite()
	}},
	{"deadline in the middle of a message", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("half"))
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		b := make([]byte, 8)
		n, err := io.ReadFull(c, b)
		s.result("read "+string(b[:n]), n, err)
		c.SetReadDeadline(time.Time{})
		sv.Write([]byte("rest"))
		n, err = io.ReadFull(c, b[4:])
		s.result("read "+string(b), n, err)
	}},
	{"deadline of copies", func(s *script) {
		c, _ := s.pair()
		wait := s.park(func(s *script) {
			n, err := c.WriteTo(writerOnly{io.Discard})
			s.result("write to", n, err)
		})
		s.failed("read deadline", c.SetReadDeadline(past))
		wait()
		wait = s.park(func(s *script) {
			_, err := c.ReadFrom(readerOnly{bytes.NewReader(zeros(32 << 20))})
			s.failed("read from", err)
		})
		s.failed("write deadline", c.SetWriteDeadline(past))
		wait()
	}},
	{"other calls past the deadline", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("unread"))
		s.failed("deadline", c.SetDeadline(past))
		s.options(c)
		m, err := c.ReadFrom(strings.NewReader("data"))
		s.result("read from", m, err)
		s.failed("close write", c.CloseWrite())
		n2, err := c.Write([]byte("x"))
		s.result("write", n2, err)
		s.failed("close read", c.CloseRead())
		n2, err = c.Read(make([]byte, 1))
		s.result("read", n2, err)
		_, err = sv.Read(make([]byte, 1))
		s.failed("peer: read", err)
		s.failed("close", c.Close())
	}},
	{"deadline after the end", func(s *script) {
		c, sv := s.pair()
		sv.Write([]byte("last"))
		sv.Close()
		c.SetReadDeadline(past)
		n, err := c.Read(make([]byte, 9))
		s.result("read", n, err)
		c.SetReadDeadline(future())
		got, err := io.ReadAll(c)
		s.result("read "+string(got), len(got), err)
		c.SetReadDeadline(past)
		n, err = c.Read(make([]byte, 9))
		s.result("read", n, err)
	}},
}
