package sannet_test

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"
	"time"
)

// link is one end of a pipe between two processes, over which each calls methods of the other's objects. Calls run at the
// same time, each in a goroutine of its own, and begin in the order in which they were made.
type link struct {
	mu      sync.Mutex // also makes a message whole, and the order that of IDs
	enc     *gob.Encoder
	calls   map[uint64]chan frame // that wait for an answer
	id      uint64
	objects map[uint64]any
	object  uint64
	err     error
	serving sync.WaitGroup
}

// frame is a call, or the answer to one, in which Method is empty.
type frame struct {
	ID     uint64
	Object uint64
	Method string
	Values []any // of a type that gob knows, and not nil
}

// ref stands for an object of the sender's.
type ref struct{ ID uint64 }

func init() {
	for _, v := range []any{time.Time{}, time.Duration(0), net.KeepAliveConfig{}, ref{}, wireError{}, wireAddr{}} {
		gob.Register(v)
	}
}

// newLink returns a link of which root is object 0.
func newLink(w io.Writer, root any) *link {
	return &link{enc: gob.NewEncoder(w), calls: make(map[uint64]chan frame), objects: map[uint64]any{0: root}}
}

// serve takes calls and answers until r ends.
func (l *link) serve(r io.Reader) {
	dec := gob.NewDecoder(r)
	for {
		var f frame
		if err := dec.Decode(&f); err != nil {
			l.mu.Lock()
			l.err = fmt.Errorf("the other process is gone: %w", err)
			for _, ch := range l.calls {
				close(ch)
			}
			l.calls = nil
			l.mu.Unlock()
			l.serving.Wait()
			return
		}
		if f.Method != "" {
			l.serving.Go(func() { l.handle(f) })
			continue
		}
		l.mu.Lock()
		ch := l.calls[f.ID]
		delete(l.calls, f.ID)
		l.mu.Unlock()
		ch <- f
	}
}

// handlerMark is in the stack of every goroutine that runs a call.
const handlerMark = "(*link).handle("

func (l *link) handle(f frame) {
	l.mu.Lock()
	o := l.objects[f.Object]
	l.mu.Unlock()
	answer := frame{ID: f.ID}
	if r, ok := o.(io.Reader); ok && f.Method == "Read" {
		b := make([]byte, f.Values[0].(int))
		n, err := r.Read(b)
		answer.Values = []any{b[:n], toWire(err)}
	} else {
		m := reflect.ValueOf(o).MethodByName(f.Method)
		var args []reflect.Value
		for _, v := range f.Values {
			if r, ok := v.(ref); ok {
				v = stream{l, r.ID}
			}
			args = append(args, reflect.ValueOf(v))
		}
		for i, v := range m.Call(args) {
			answer.Values = append(answer.Values, l.export(v.Interface(), m.Type().Out(i)))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enc.Encode(answer)
}

var errorType = reflect.TypeFor[error]()

// export makes a value fit for the link.
func (l *link) export(v any, as reflect.Type) any {
	if as == errorType {
		err, _ := v.(error)
		return toWire(err)
	}
	switch v := v.(type) {
	case nil:
		return ref{}
	case net.Addr:
		return toWireAddr(v)
	case net.Conn, net.Listener, stream, io.Reader, io.Writer:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.object++
		l.objects[l.object] = v
		return ref{l.object}
	}
	return v
}

// call calls a method of an object at the other end. Where that is gone the error is a panic.
func (l *link) call(object uint64, method string, args ...any) []any {
	ch := make(chan frame, 1)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		panic(l.err)
	}
	l.id++
	l.calls[l.id] = ch
	err := l.enc.Encode(frame{l.id, object, method, args})
	l.mu.Unlock()
	if err != nil {
		panic(err)
	}
	f, ok := <-ch
	if !ok {
		panic(l.err)
	}
	return f.Values
}

// stream is a reader or writer at the other end.
type stream struct {
	l  *link
	id uint64
}

func (s stream) Read(b []byte) (int, error) {
	r := s.l.call(s.id, "Read", len(b))
	return copy(b, r[0].([]byte)), r[1].(wireError).error()
}

func (s stream) Write(b []byte) (int, error) {
	r := s.l.call(s.id, "Write", b)
	return r[0].(int), r[1].(wireError).error()
}

// remoteConn is a connection at the other end.
type remoteConn struct {
	stream
	mu    sync.Mutex
	addrs map[string]net.Addr
}

func (c *remoteConn) do(method string, args ...any) error {
	return c.l.call(c.id, method, args...)[0].(wireError).error()
}

// addr keeps apart what is apart at the other end.
func (c *remoteConn) addr(method string) net.Addr {
	w := c.l.call(c.id, method)[0].(wireAddr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.addrs[w.Pointer]; a != nil {
		return a
	}
	if c.addrs == nil {
		c.addrs = make(map[string]net.Addr)
	}
	c.addrs[w.Pointer] = w.addr()
	return c.addrs[w.Pointer]
}

// copy passes a reader or writer.
func (c *remoteConn) copy(method string, end any) (int64, error) {
	r := c.l.call(c.id, method, c.l.export(end, reflect.TypeOf(end)))
	return r[0].(int64), r[1].(wireError).error()
}

func (c *remoteConn) LocalAddr() net.Addr                      { return c.addr("LocalAddr") }
func (c *remoteConn) RemoteAddr() net.Addr                     { return c.addr("RemoteAddr") }
func (c *remoteConn) Close() error                             { return c.do("Close") }
func (c *remoteConn) CloseRead() error                         { return c.do("CloseRead") }
func (c *remoteConn) CloseWrite() error                        { return c.do("CloseWrite") }
func (c *remoteConn) SetDeadline(t time.Time) error            { return c.do("SetDeadline", t) }
func (c *remoteConn) SetReadDeadline(t time.Time) error        { return c.do("SetReadDeadline", t) }
func (c *remoteConn) SetWriteDeadline(t time.Time) error       { return c.do("SetWriteDeadline", t) }
func (c *remoteConn) SetNoDelay(on bool) error                 { return c.do("SetNoDelay", on) }
func (c *remoteConn) SetKeepAlive(on bool) error               { return c.do("SetKeepAlive", on) }
func (c *remoteConn) SetKeepAlivePeriod(d time.Duration) error { return c.do("SetKeepAlivePeriod", d) }
func (c *remoteConn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	return c.do("SetKeepAliveConfig", k)
}
func (c *remoteConn) SetLinger(sec int) error             { return c.do("SetLinger", sec) }
func (c *remoteConn) SetReadBuffer(n int) error           { return c.do("SetReadBuffer", n) }
func (c *remoteConn) SetWriteBuffer(n int) error          { return c.do("SetWriteBuffer", n) }
func (c *remoteConn) ReadFrom(r io.Reader) (int64, error) { return c.copy("ReadFrom", r) }
func (c *remoteConn) WriteTo(w io.Writer) (int64, error)  { return c.copy("WriteTo", w) }

// remoteListener is a listener at the other end.
type remoteListener struct{ remoteConn }

func (r *remoteListener) Accept() (net.Conn, error) {
	v := r.l.call(r.id, "Accept")
	return r.l.conn(v)
}

// conn returns the connection of an answer.
func (l *link) conn(v []any) (net.Conn, error) {
	if err := v[1].(wireError).error(); err != nil {
		return nil, err
	}
	return &remoteConn{stream: stream{l, v[0].(ref).ID}}, nil
}

func (r *remoteListener) Addr() net.Addr { return r.addr("Addr") }

// wireAddr is an address on its way.
type wireAddr struct {
	Pointer string // tells whether two are one
	TCP     *net.TCPAddr
	Other   string // type of another one
}

func toWireAddr(a net.Addr) wireAddr {
	switch a := a.(type) {
	case nil:
		return wireAddr{}
	case *net.TCPAddr:
		return wireAddr{Pointer: fmt.Sprintf("%p", a), TCP: a}
	}
	return wireAddr{Other: fmt.Sprintf("%T", a)}
}

func (w wireAddr) addr() net.Addr {
	if w.TCP == nil {
		return nil
	}
	if len(w.TCP.IP) == 0 {
		w.TCP.IP = nil
	}
	return w.TCP
}

// wireError is an error on its way, which keeps its type, text and chain, as far as errors of net go.
type wireError struct {
	Type         string
	Text         string
	Op, Net      string // net.OpError, and the call of os.SyscallError
	Source, Addr wireAddr
	Errno        uint32
	DNS          *net.DNSError
	Err          *wireError
}

var sentinels = []error{io.EOF, io.ErrShortWrite, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded}

func toWire(err error) wireError {
	if err == nil {
		return wireError{}
	}
	w := wireError{Type: fmt.Sprintf("%T", err), Text: err.Error()}
	for _, s := range sentinels {
		if err == s {
			w.Type = "sentinel"
		}
	}
	switch e := err.(type) {
	case *net.OpError:
		w.Op, w.Net, w.Source, w.Addr = e.Op, e.Net, toWireAddr(e.Source), toWireAddr(e.Addr)
		inner := toWire(e.Err)
		w.Err = &inner
	case *os.SyscallError:
		w.Op = e.Syscall
		inner := toWire(e.Err)
		w.Err = &inner
	case syscall.Errno:
		w.Errno = uint32(e)
	case *net.AddrError:
		w.Op, w.Net = e.Err, e.Addr
	case net.UnknownNetworkError:
		w.Op = string(e)
	case *net.DNSError:
		d := *e
		d.UnwrapErr = nil
		w.DNS = &d
	}
	return w
}

// strangeError is one that the link does not know.
type strangeError struct{ wireError }

func (e strangeError) Error() string { return e.Type + ": " + e.Text }

func (w wireError) error() error {
	switch w.Type {
	case "":
		return nil
	case "sentinel":
		for _, s := range sentinels {
			if s.Error() == w.Text {
				return s
			}
		}
	case "*net.OpError":
		return &net.OpError{Op: w.Op, Net: w.Net, Source: w.Source.addr(), Addr: w.Addr.addr(), Err: w.Err.error()}
	case "*os.SyscallError":
		return &os.SyscallError{Syscall: w.Op, Err: w.Err.error()}
	case "syscall.Errno":
		return syscall.Errno(w.Errno)
	case "*errors.errorString":
		return errors.New(w.Text)
	case "*net.AddrError":
		return &net.AddrError{Err: w.Op, Addr: w.Net}
	case "net.UnknownNetworkError":
		return net.UnknownNetworkError(w.Op)
	case "*net.DNSError":
		return w.DNS
	}
	return strangeError{w}
}
