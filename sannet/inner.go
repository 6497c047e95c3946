package sannet

import (
	"net"
	"reflect"
)

// maxInner bounds how many connections are looked at behind one, should a wrapper lead back to
// where it came from.
const maxInner = 32

// findInner looks at c, and at what it wraps, until look reports that it has found what it wants.
// It does not go into a connection that wraps nothing.
func findInner(c net.Conn, look func(net.Conn) (found, leaf bool)) {
	next := []net.Conn{c}
	for range maxInner {
		if len(next) == 0 {
			return
		}
		c, next = next[len(next)-1], next[:len(next)-1]
		if isNil(c) {
			continue
		}
		found, leaf := look(c)
		if found {
			return
		}
		if !leaf {
			next = append(next, innerOf(c)...)
		}
	}
}

// innerOf returns the connections that c may wrap, the likeliest last: that which a method shows
// whose name is customary for it, those that are embedded in c, and those in its fields, provided
// that they have the addresses of c, and are not just some other connection.
func innerOf(c net.Conn) []net.Conn {
	inner := fieldsOf(c)
	switch cc := c.(type) {
	case interface{ NetConn() net.Conn }: // crypto/tls, and who follows it
		return append(inner, cc.NetConn())
	case interface{ Unwrap() net.Conn }:
		return append(inner, cc.Unwrap())
	case interface{ Raw() net.Conn }: // of the PROXY protocol, which gives the peer another address
		return append(inner, cc.Raw())
	case interface{ UnderlyingConn() net.Conn }: // of WebSockets
		return append(inner, cc.UnderlyingConn())
	}
	return inner
}

var connType = reflect.TypeFor[net.Conn]()

// fieldsOf returns the connections in the fields of c. Reading these is no race where they are
// set when c is made, as wrappers have it.
func fieldsOf(c net.Conn) []net.Conn {
	v := addressable(reflect.ValueOf(c))
	if !v.IsValid() {
		return nil
	}
	var others, embedded []net.Conn
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if !f.Type.Implements(connType) {
			if !reflect.PointerTo(f.Type).Implements(connType) {
				continue
			}
			field = field.Addr()
		}
		inner, _ := valueOf(field).(net.Conn)
		switch {
		case isNil(inner):
		case f.Anonymous:
			embedded = append(embedded, inner)
		case sameEnds(c, inner):
			others = append(others, inner)
		}
	}
	return append(others, embedded...)
}

// addressable returns the struct that c is, or points to, so that its fields have addresses; the
// zero Value if it is none.
func addressable(v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct:
		return v.Elem()
	case v.Kind() == reflect.Struct:
		s := reflect.New(v.Type()).Elem()
		s.Set(v)
		return s
	}
	return reflect.Value{}
}

// isNil reports whether there is no connection that could be asked.
func isNil(c net.Conn) bool {
	if c == nil {
		return true
	}
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// sameEnds reports whether both have the same two addresses.
func sameEnds(a, b net.Conn) bool {
	return sameAddr(a.LocalAddr(), b.LocalAddr()) && sameAddr(a.RemoteAddr(), b.RemoteAddr())
}

func sameAddr(a, b net.Addr) bool {
	return a != nil && b != nil && a.Network() == b.Network() && a.String() == b.String()
}
