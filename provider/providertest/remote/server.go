package remote

import (
	"context"
	"encoding/gob"
	"io"
	"sync"
	"time"

	"sansock/provider"
)

// server is the process that has the provider.
type server struct {
	p   provider.Provider
	mem []byte
	ctx context.Context

	mu      sync.Mutex // a leaf
	objects map[uint64]any
	next    uint64
	cancels map[uint64]context.CancelFunc
	out     []*message
	more    sync.Cond // out has grown, or over is set
	over    bool
}

// served is an endpoint of the server, with the memory that it has allocated.
type served struct {
	provider.Endpoint

	mu        sync.Mutex // a leaf
	allocated map[provider.Handle][]byte
}

// Serve answers the calls that come over conn with p, whose registered memory lies in mem, until conn ends. Then it closes p
// and everything that was made with it. The error is that of conn, nil at its end.
func Serve(conn io.ReadWriter, p provider.Provider, mem []byte) error {
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{p: p, mem: mem, ctx: ctx, objects: make(map[uint64]any), cancels: make(map[uint64]context.CancelFunc)}
	s.more.L = &s.mu
	var calls, writer sync.WaitGroup
	writer.Go(func() { s.write(conn) })
	in := gob.NewDecoder(conn)
	var err error
	for {
		m := new(message)
		if err = in.Decode(m); err != nil {
			break
		}
		if m.Call == callCancel {
			s.mu.Lock()
			if end := s.cancels[m.ID]; end != nil {
				end()
			}
			s.mu.Unlock()
			continue
		}
		ctx := s.contextOf(m)
		calls.Go(func() {
			a := s.answer(ctx, m)
			a.ID, a.Call = m.ID, m.Call
			s.mu.Lock()
			if end := s.cancels[m.ID]; end != nil {
				end()
				delete(s.cancels, m.ID)
			}
			s.mu.Unlock()
			s.send(a)
		})
	}
	cancel()
	p.Close()
	for _, o := range s.all() {
		if c, ok := o.(io.Closer); ok {
			c.Close()
		}
	}
	calls.Wait()
	for _, o := range s.all() { // made in the meantime
		if c, ok := o.(io.Closer); ok {
			c.Close()
		}
	}
	s.mu.Lock()
	s.over = true
	s.more.Signal()
	s.mu.Unlock()
	writer.Wait()
	if err == io.EOF || err == io.ErrUnexpectedEOF || err == io.ErrClosedPipe {
		return nil
	}
	return err
}

func (s *server) all() (all []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		all = append(all, o)
	}
	return all
}

// send queues a message. It does not wait, as the wake function must not.
func (s *server) send(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, m)
	s.more.Signal()
}

func (s *server) write(conn io.Writer) {
	out := gob.NewEncoder(conn)
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.over {
			s.more.Wait()
		}
		all := s.out
		s.out = nil
		s.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, m := range all {
			if out.Encode(m) != nil {
				break // Serve finds out by reading
			}
		}
	}
}

// contextOf is the context of a call, which callCancel ends.
func (s *server) contextOf(m *message) context.Context {
	if m.Call != callDial && m.Call != callEstablish {
		return s.ctx
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if m.Deadline != 0 {
		ctx, cancel = context.WithDeadline(s.ctx, time.Unix(0, m.Deadline))
	}
	if m.Ended {
		cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels[m.ID] = cancel
	return ctx
}

func (s *server) keep(o any) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	s.objects[s.next] = o
	return s.next
}

func object[T any](s *server, id uint64) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[id].(T)
}

// endpoint makes the answer about a new endpoint.
func (s *server) endpoint(ep provider.Endpoint, err error) *message {
	if err != nil {
		return &message{Failure: pack(err)}
	}
	id := s.keep(&served{Endpoint: ep, allocated: make(map[provider.Handle][]byte)})
	ep.OnWake(func() { s.send(&message{Call: callWake, Object: id}) })
	return &message{Object: id, Attributes: ep.Attributes(), Local: ep.LocalAddr(), Remote: ep.RemoteAddr()}
}

// answer does what m asks for.
func (s *server) answer(ctx context.Context, m *message) *message {
	switch m.Call {
	case callOpen:
		return &message{Name: s.p.Name(), Attributes: s.p.Attributes()}
	case callPrefixes:
		ps, err := s.p.Prefixes()
		return &message{Prefixes: ps, Failure: pack(err)}
	case callDial:
		return s.endpoint(s.p.Dial(ctx, m.Local, m.Remote))
	case callListen:
		l, err := s.p.Listen(m.Local, m.Number)
		if err != nil {
			return &message{Failure: pack(err)}
		}
		return &message{Object: s.keep(l), Local: l.Addr()}
	case callShut:
		return &message{Failure: pack(s.p.Close())}
	case callAccept:
		r, err := object[provider.Listener](s, m.Object).Accept()
		if err != nil {
			return &message{Failure: pack(err)}
		}
		return &message{Object: s.keep(r), Local: r.LocalAddr(), Remote: r.RemoteAddr()}
	case callUnlisten:
		return &message{Failure: pack(object[provider.Listener](s, m.Object).Close())}
	case callEstablish:
		return s.endpoint(object[provider.Request](s, m.Object).Accept(ctx))
	case callReject:
		return &message{Failure: pack(object[provider.Request](s, m.Object).Reject(m.Reason))}
	}
	return object[*served](s, m.Object).answer(s, m)
}

// answer does what m asks of an endpoint.
func (e *served) answer(s *server, m *message) *message {
	region := func(r provider.Region, err error) *message {
		return &message{Handle: r.Handle, Descriptor: r.Descriptor, Number: len(r.Bytes), Failure: pack(err)}
	}
	failed := func(err error) *message { return &message{Failure: pack(err)} }
	rdma := provider.RDMA{Context: m.Context, Local: e.segment(s, m.Memory), Remote: m.Descriptor, Offset: m.Offset}
	switch m.Call {
	case callAllocate:
		r, err := e.Allocate(m.Number)
		if err == nil {
			e.mu.Lock()
			e.allocated[r.Handle] = r.Bytes
			e.mu.Unlock()
		}
		return region(r, err)
	case callRegister:
		return region(e.Register(rdma.Local.Bytes))
	case callExpose:
		return region(e.Expose(rdma.Local.Bytes, m.Rights))
	case callDeregister:
		return failed(e.Deregister(m.Handle))
	case callRecv:
		return failed(e.PostRecv(provider.Recv{Context: m.Context, Buffer: rdma.Local}))
	case callSend:
		return failed(e.PostSend(provider.Send{
			Context: m.Context, Local: rdma.Local, Inline: m.Inline, Solicited: m.Solicited, Open: m.Open,
		}))
	case callWrite:
		return failed(e.PostWrite(rdma))
	case callRead:
		return failed(find[provider.RDMAReader](e, provider.GUIDRDMARead).PostRead(rdma))
	case callPoll:
		c := make([]provider.Completion, m.Number)
		return &message{Completions: c[:e.Poll(c)]}
	case callArm:
		return &message{Ready: e.Arm(m.Wake)}
	case callExtension:
		x, err := e.Extension(m.GUID)
		a := failed(err)
		_, read := x.(provider.RDMAReader)
		_, cache := x.(provider.CacheInvalidator)
		_, spin := x.(provider.Spinner)
		_, grows := x.(provider.Appender)
		switch { // one value may be all of them
		case x == nil:
		case read && m.GUID == provider.GUIDRDMARead:
			a.Kind = extensionRead
		case cache && m.GUID == provider.GUIDCacheCallback:
			a.Kind = extensionCache
		case spin && m.GUID == provider.GUIDSpinner:
			a.Kind = extensionSpinner
		case grows && m.GUID == provider.GUIDAppender:
			a.Kind = extensionAppender
		default:
			a.Kind = extensionOther
		}
		return a
	case callInvalidate:
		find[provider.CacheInvalidator](e, provider.GUIDCacheCallback).InvalidateCache(rdma.Local.Bytes)
		return &message{}
	case callSpin:
		return &message{Ready: find[provider.Spinner](e, provider.GUIDSpinner).Spin()}
	case callAppend:
		return &message{Ready: find[provider.Appender](e, provider.GUIDAppender).Append(m.Data)}
	case callUnread:
		find[provider.Appender](e, provider.GUIDAppender).Unread(m.Unread)
		return &message{}
	case callClose:
		return failed(e.Close())
	}
	return failed(provider.StatusUnsupported)
}

// find is an extension that the other end has looked up before.
func find[T any](e *served, id provider.GUID) T {
	x, _ := e.Extension(id)
	return x.(T)
}

// segment is the memory that the other end means.
func (e *served) segment(s *server, m segment) provider.Segment {
	var b []byte
	switch m.Place {
	case placeShared:
		b = s.mem[m.Off : m.Off+m.Len : m.Off+m.Len]
	case placeAllocated:
		e.mu.Lock()
		b = e.allocated[m.Handle][m.Off : m.Off+m.Len : m.Off+m.Len]
		e.mu.Unlock()
	case placeElsewhere:
		b = make([]byte, m.Len)
	}
	return provider.Segment{Bytes: b, Handle: m.Handle}
}
