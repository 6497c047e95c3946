// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"internal/sango/san"
	"runtime"
)

// sangoRaw is the syscall.RawConn of a connection that was over the SAN when it was asked for.
type sangoRaw struct{ fd *netFD }

func (r sangoRaw) Control(f func(uintptr)) error {
	c := r.fd.san()
	if c == nil {
		return newRawConn(r.fd).Control(f)
	}
	err := c.Control(f)
	runtime.KeepAlive(r.fd)
	if err == san.ErrDetached {
		r.fd.sangoWait()
		return newRawConn(r.fd).Control(f)
	}
	if err != nil {
		err = &OpError{Op: "raw-control", Net: r.fd.net, Source: nil, Addr: r.fd.laddr, Err: err}
	}
	return err
}

func (r sangoRaw) Read(f func(uintptr) bool) error {
	if c := r.fd.san(); c != nil {
		done, data, err := c.RawRead(f)
		if err == san.ErrDetached || err == nil && !done {
			err = r.fd.sangoLeave(data)
		}
		runtime.KeepAlive(r.fd)
		if err != nil {
			return &OpError{Op: "raw-read", Net: r.fd.net, Source: r.fd.laddr, Addr: r.fd.raddr, Err: err}
		}
		if done {
			return nil
		}
	}
	return newRawConn(r.fd).Read(f)
}

func (r sangoRaw) Write(f func(uintptr) bool) error {
	if err := r.fd.sangoLeave(false); err != nil {
		return &OpError{Op: "raw-write", Net: r.fd.net, Source: r.fd.laddr, Addr: r.fd.raddr, Err: err}
	}
	return newRawConn(r.fd).Write(f)
}
