package sanswitch

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
)

// tracer fires the hooks ConnectStart and ConnectDone of net/http/httptrace, as net.Dialer does:
// once each for an address that is dialed, whichever ways there are tried. A nil tracer does
// nothing.
//
// A context carries hooks under a key of net's own, in a struct that only the standard library
// can name: to use package httptrace would link net/http into every program. So the key is what
// net asks a context for, and the struct is read by reflection. Should net change either, hooks
// are fired for TCP alone, by net.
type tracer struct {
	network string
	start   func(network, addr string)
	done    func(network, addr string, err error)

	mu   sync.Mutex // the hooks are called without it
	open []tracedAddr
	over bool
}

// tracedAddr is an address of which ConnectDone is due.
type tracedAddr struct {
	dst destination
	err error // what has failed so far; it may still be reached in another way
}

// traceKey is the key of hooks in a context, nil if it is not known.
var traceKey = sync.OnceValue(func() any {
	probe := keyProbe{Context: context.Background()}
	new(net.Dialer).DialContext(&probe, "tcp", "") // fails for want of an address
	return probe.key
})

// keyProbe is a context that finds out the key of hooks.
type keyProbe struct {
	context.Context
	key any
}

// Value implements context.Context.
func (p *keyProbe) Value(key any) any {
	t := reflect.TypeOf(key)
	if t != nil && t.PkgPath() == "internal/nettrace" && t.Name() == "TraceKey" {
		p.key = key
	}
	return nil
}

// newTracer returns a tracer for the hooks in ctx, and a context without them, for what net does
// as a part of this dial.
func newTracer(ctx context.Context, network string) (*tracer, context.Context) {
	key := traceKey()
	if key == nil {
		return nil, ctx
	}
	hooks := reflect.ValueOf(ctx.Value(key))
	if hooks.Kind() != reflect.Pointer || hooks.IsNil() || hooks.Elem().Kind() != reflect.Struct {
		return nil, ctx
	}
	// Others stay: those of DNS are net's to call.
	others := reflect.New(hooks.Elem().Type())
	others.Elem().Set(hooks.Elem())
	t := &tracer{network: network}
	if !take(others.Elem(), "ConnectStart", &t.start) ||
		!take(others.Elem(), "ConnectDone", &t.done) {
		return nil, ctx
	}
	return t, context.WithValue(ctx, key, others.Interface())
}

// take moves the hook of that name out of a struct, and reports whether there is a place for one.
func take[F any](hooks reflect.Value, name string, to *F) bool {
	field := hooks.FieldByName(name)
	if !field.IsValid() || !field.CanSet() || field.Type() != reflect.TypeFor[F]() {
		return false
	}
	*to = field.Interface().(F)
	field.SetZero()
	return true
}

// begin notes that dst is dialed, in one way or another.
func (t *tracer) begin(dst destination) {
	if t == nil {
		return
	}
	t.mu.Lock()
	known := t.over || t.find(dst) >= 0
	if !known {
		t.open = append(t.open, tracedAddr{dst: dst})
	}
	t.mu.Unlock()
	if !known && t.start != nil {
		t.start(t.network, dst.shown.String())
	}
}

// fail notes how one way to dst has failed.
func (t *tracer) fail(dst destination, err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.find(dst); i >= 0 {
		t.open[i].err = err
	}
}

// end notes the outcome of dialing dst.
func (t *tracer) end(dst destination, err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	i := t.find(dst)
	if i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
	t.mu.Unlock()
	if i >= 0 && t.done != nil {
		t.done(t.network, dst.shown.String(), err)
	}
}

// finish ends what is still open at the end of the dial: it has failed, or was called off.
func (t *tracer) finish(d *net.Dialer) {
	if t == nil {
		return
	}
	t.mu.Lock()
	open := t.open
	t.open, t.over = nil, true
	t.mu.Unlock()
	for _, a := range open {
		if a.err == nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			a.err = opError(t.network, d, a.dst, contextError(ended))
		}
		if t.done != nil {
			t.done(t.network, a.dst.shown.String(), a.err)
		}
	}
}

// find needs to be called with locked mutex.
func (t *tracer) find(dst destination) int {
	return slices.IndexFunc(t.open, func(a tracedAddr) bool { return a.dst.shown == dst.shown })
}
