package sannet

import (
	"io"
	"syscall"

	"sansock/session"
)

// Buffer is memory for data that crosses without a copy of the program's: see Conn.NewBuffer and Conn.ReadBuffer. It has one
// owner at a time, and must not be used after Release, or after it was given to WriteBuffer: that panics.
type Buffer = session.Buffer

// NewBuffer returns a zeroed Buffer of n bytes, registered with the connection's provider. WriteBuffer sends it, or Release
// gives it back. Where the provider has no registered memory left, it is ordinary memory: all works, with a copy.
func (c *Conn) NewBuffer(n int) (*Buffer, error) {
	if !c.ok() || n < 0 {
		return nil, syscall.EINVAL
	}
	b, err := c.s.Load().NewBuffer(n)
	if err != nil {
		err = c.error("write", "write", err)
	}
	return b, err
}

// WriteBuffer writes the first n bytes of b, as Write does, and releases b whatever the outcome. It panics where b has less
// than n bytes. It does not matter which connection b is from, but only the own one saves the copy.
func (c *Conn) WriteBuffer(b *Buffer, n int) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.s.Load().WriteBuffer(b, n)
	if err != nil {
		err = c.error("write", "write", err)
	}
	return n, err
}

// ReadBuffer returns the next bytes of the stream, at least one, where they arrived instead of copying them into a
// slice of the program's. It waits and fails as Read does. The program owns the Buffer until it calls Release, which
// may be after Close; as the memory is the connection's, the peer can send less while many are kept.
func (c *Conn) ReadBuffer() (*Buffer, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	b, err := c.s.Load().ReadBuffer()
	if err != nil && err != io.EOF {
		err = c.error("read", "read", err)
	}
	return b, err
}
