package main

import (
	"errors"
	"io"
	"net"
	"sync"

	"sansock/sannet"
)

// bufferSize is how much is read from TCP at a time. Of the SAN no buffer is needed.
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// result is how a connection went.
type result struct {
	sent, received int64
	aborted        bool
	client, target error // what went wrong at either end, if it was that and not the proxy
}

// end says how the connection ended.
func (r result) end() string {
	switch {
	case r.client != nil:
		return "aborted by the client: " + r.client.Error()
	case r.target != nil:
		return "aborted by the target: " + r.target.Error()
	case r.aborted:
		return "aborted"
	}
	return "closed"
}

// join copies both ways until both are over, and closes both connections. The end of input is passed on in its direction
// alone; where one end fails, as by a reset, the other is reset too.
func join(client, target net.Conn) (r result) {
	var back flow
	var wg sync.WaitGroup
	wg.Go(func() { back = move(client, target) })
	there := move(target, client)
	wg.Wait()
	r = result{
		sent:     there.n,
		received: back.n,
		aborted:  there.failed() || back.failed(),
		client:   cause(there.from, back.to),
		target:   cause(there.to, back.from),
	}
	// Where writing was all that failed, the other direction has gone on to its end: what the failing end had still sent
	// is worth having.
	if r.aborted {
		abort(client)
		abort(target)
	} else {
		client.Close()
		target.Close()
	}
	return r
}

// cause is the first error that is not of the proxy's own abort.
func cause(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// flow is how one direction went.
type flow struct {
	n        int64
	from, to error // of reading and of writing
}

func (f flow) failed() bool { return f.from != nil || f.to != nil }

// move copies from src to dst, and passes the end of input on. When reading fails, it resets dst, as the other
// direction might wait for it forever.
func move(dst, src net.Conn) flow {
	w := &sink{w: dst}
	var err error
	if s, ok := src.(*sannet.Conn); ok {
		_, err = s.WriteTo(w) // from where the data lies
	} else {
		b := buffers.Get().(*[bufferSize]byte)
		_, err = io.CopyBuffer(w, struct{ io.Reader }{src}, b[:])
		buffers.Put(b)
	}
	f := flow{n: w.n, to: w.err}
	switch {
	case w.err != nil:
	case err != nil:
		f.from = err
		abort(dst)
	default:
		f.to = dst.(interface{ CloseWrite() error }).CloseWrite()
	}
	return f
}

// sink is a writer that knows whether it was what failed.
type sink struct {
	w   io.Writer
	n   int64
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// abort closes c so that its peer sees a reset.
func abort(c net.Conn) {
	c.(interface{ SetLinger(int) error }).SetLinger(0)
	c.Close()
}
