package sannet

import (
	"errors"
	"io"
	"net"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/session"
)

// ReadFrom and WriteTo start with a small buffer, as a connection may be idle for long, and change to larger ones while
// they get them full: large enough to go by RDMA, small enough to stay in the processor's cache between the two copies.
const (
	minCopyBuffer = 8 << 10
	maxCopyBuffer = 128 << 10
)

var errInvalidWrite = errors.New("invalid write result")

// ReadFrom writes everything that it reads from r until io.EOF, and returns the number of bytes written.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.readFrom(r)
	if err != nil {
		err = c.opError("readfrom", err)
	}
	return n, err
}

func (c *Conn) readFrom(r io.Reader) (int64, error) {
	// A reader that can hand over its bytes saves the copy. It must not find ReadFrom on what it
	// writes to, or it might call back.
	if wt, ok := r.(io.WriterTo); ok {
		return wt.WriteTo(writerOnly{c})
	}
	return copyThrough(c, r)
}

// WriteTo reads until io.EOF and writes everything to w, and returns the number of bytes written.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.s.Load().WriteTo(w)
	if err != nil {
		if read, ok := err.(*session.ReadError); ok {
			err = c.error("read", "read", read.Err)
		}
		err = c.opError("writeto", err)
	}
	return n, err
}

// writerOnly hides everything of a Conn but Write.
type writerOnly struct{ c *Conn }

func (w writerOnly) Write(b []byte) (int, error) { return w.c.Write(b) }

// copyThrough is io.Copy with pooled buffers and without the detours through WriteTo and ReadFrom.
func copyThrough(w io.Writer, r io.Reader) (written int64, err error) {
	buf := pool.Get(minCopyBuffer)
	defer func() { pool.Put(buf) }()
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			m, werr := w.Write(buf[:n])
			if m < 0 || m > n {
				m = 0
				if werr == nil {
					werr = errInvalidWrite
				}
			}
			written += int64(m)
			if werr == nil && m < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return written, werr
			}
			if n == len(buf) && n < maxCopyBuffer {
				pool.Put(buf)
				buf = pool.Get(4 * n)
			}
		}
		if rerr == io.EOF {
			return written, nil
		}
		if rerr != nil {
			return written, rerr
		}
	}
}

var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
)
