package sannet

import (
	"context"
	"io"
	"syscall"

	"sansock/session"
)

// Urgent is an urgent message that was received, see Conn.ReadUrgent.
type Urgent = session.Urgent

// MaxUrgent is the size in bytes of the longest urgent message.
const MaxUrgent = session.MaxUrgent

// WriteUrgent sends b, of at most MaxUrgent bytes, as one urgent message. It does not wait for data: neither for a
// Write that waits for the peer to read, nor for what has been written before. It returns when the message has left,
// and b may be used again. No urgent message is lost, or runs into the next: while the peer has not taken the 16
// before, WriteUrgent waits.
//
// The end of ctx ends the wait, and nothing was sent then; deadlines are for Read and Write. After CloseWrite and Close
// there is no urgent data. The error is errors.ErrUnsupported where the peer's version knows none, and
// syscall.EMSGSIZE where b is too long. An empty b sends nothing.
//
// A connection over TCP has no such method: TCP's own urgent data is one byte, which a second one overwrites.
func (c *Conn) WriteUrgent(ctx context.Context, b []byte) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if err := c.s.Load().WriteUrgent(ctx, b); err != nil {
		return c.error("write", "sendmsg", err)
	}
	return nil
}

// ReadUrgent waits for the next urgent message and returns it. Urgent messages come out of line: Read never returns their
// bytes, and needs not be called for them to arrive. They are in order among themselves. Where one was written in
// the stream tells its field Ahead: it is taken account of at the call of ReadUrgent, so that a Read at the same time
// may have changed it.
//
// The end of ctx ends the wait; deadlines are for Read and Write. After the last message of a peer that writes no more the
// error is io.EOF, and errors.ErrUnsupported where the peer's version knows no urgent data.
func (c *Conn) ReadUrgent(ctx context.Context) (Urgent, error) {
	if !c.ok() {
		return Urgent{}, syscall.EINVAL
	}
	m, err := c.s.Load().ReadUrgent(ctx)
	if err != nil && err != io.EOF {
		err = c.error("read", "recvmsg", err)
	}
	return m, err
}
