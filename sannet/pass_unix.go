//go:build unix

package sannet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A connection is passed as one byte that says what it is, the length of what follows, u32, and that. A socket comes
// with the first byte. The other process answers with the length of an error message, u16, and that: 0 says that it has
// it.
const (
	passSAN = 'S' // state of Handover
	passTCP = 'T' // network
)

// maxPassed bounds the state of a connection: unread data is most of it.
const maxPassed = 1 << 30

// SendConn passes c to the process at the other end of u, a stream, that calls ReceiveConn, and returns when that has
// it. c is a *Conn, which goes on there as Conn.Handover describes, or a *net.TCPConn, whose socket is sent. No other
// data may be on u meanwhile.
//
// c is closed when SendConn returns, also after most errors: the connection is lost then, and the peer's is reset. An
// error for which c is as it was and open, as nothing has been sent, is errors.ErrUnsupported, or that of ctx, or
// context.DeadlineExceeded, before the peer has come to rest. After an error other than that, u is to be closed: a
// socket may still be in it. Windows has no such sockets, and the error is always errors.ErrUnsupported.
func SendConn(ctx context.Context, u *net.UnixConn, c net.Conn) error {
	switch c := c.(type) {
	case *Conn:
		state, err := c.Handover(ctx)
		if err != nil {
			return err
		}
		if err := exchange(ctx, u, passSAN, state, nil); err != nil {
			(&Dialer{Switch: c.sw}).lose(state)
			return &net.OpError{Op: "handover", Net: c.network, Source: c.laddr, Addr: c.raddr, Err: err}
		}
		return nil
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		if err := exchange(ctx, u, passTCP, nil, raw); err != nil {
			c.SetLinger(0)
			c.Close()
			return &net.OpError{Op: "handover", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
		}
		return c.Close()
	}
	return fmt.Errorf("sannet: a %T cannot be passed: %w", c, errors.ErrUnsupported)
}

// lose has the peer of a connection that nobody goes on with see that soon.
func (d *Dialer) lose(state []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if c, err := d.Resume(ctx, state); err == nil {
		c.SetLinger(0)
		c.Close()
	}
}

// ReceiveConn returns a connection that the process at the other end of u passes with SendConn: a *Conn, or a
// *net.TCPConn. The error is io.EOF when the other process has closed u, or is gone. After an error of a connection,
// which is lost then and is a *net.OpError with Op "resume", there may be others.
func ReceiveConn(ctx context.Context, u *net.UnixConn) (net.Conn, error) {
	return new(Dialer).ReceiveConn(ctx, u)
}

// ReceiveConn is the function ReceiveConn, on the SANs of d.Switch. Other fields of d are of no concern.
func (d *Dialer) ReceiveConn(ctx context.Context, u *net.UnixConn) (net.Conn, error) {
	defer bound(ctx, u)()
	what, body, file, err := receive(u)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	if file != nil {
		defer file.Close()
	}
	var c net.Conn
	switch what {
	case passSAN:
		var sc *Conn
		if sc, err = d.Resume(ctx, body); err == nil {
			c = sc
		}
	case passTCP:
		if c, err = tcpConn(file); err != nil {
			err = &net.OpError{Op: "resume", Net: "tcp", Err: err}
		}
	default:
		err = fmt.Errorf("sannet: unknown kind %q of connection", what)
	}
	if answerErr := answer(u, err); err == nil && answerErr != nil {
		// The other side takes it for lost.
		c.(interface{ SetLinger(int) error }).SetLinger(0)
		c.Close()
		return nil, answerErr
	}
	return c, err
}

// tcpConn is the connection over TCP whose socket file is, if it is one.
func tcpConn(file *os.File) (net.Conn, error) {
	if file == nil {
		return nil, errors.New("no socket")
	}
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	if _, ok := c.(*net.TCPConn); !ok {
		c.Close()
		return nil, errors.New("a socket that is not TCP's")
	}
	return c, nil
}

// bound makes u fail when ctx ends. It returns what undoes that.
func bound(ctx context.Context, u *net.UnixConn) (undo func()) {
	past := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		u.SetDeadline(time.Unix(1, 0))
		close(past)
	})
	return func() {
		if !stop() {
			<-past
		}
		u.SetDeadline(time.Time{})
	}
}

// exchange sends a connection, and waits for the answer.
func exchange(ctx context.Context, u *net.UnixConn, what byte, body []byte, socket syscall.RawConn) (err error) {
	defer bound(ctx, u)()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	head := binary.LittleEndian.AppendUint32([]byte{what}, uint32(len(body)))
	if socket == nil {
		_, err = u.Write(head)
	} else {
		cerr := socket.Control(func(fd uintptr) { _, _, err = u.WriteMsgUnix(head, unix.UnixRights(int(fd)), nil) })
		if err == nil {
			err = cerr
		}
	}
	if err != nil {
		return err
	}
	if _, err := u.Write(body); err != nil {
		return err
	}
	var n [2]byte
	if _, err := io.ReadFull(u, n[:]); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = syscall.ECONNRESET // the other process is gone
		}
		return err
	}
	if m := binary.LittleEndian.Uint16(n[:]); m > 0 {
		text := make([]byte, m)
		if _, err := io.ReadFull(u, text); err != nil {
			return err
		}
		return fmt.Errorf("the receiver: %s", text)
	}
	return nil
}

// receive takes what exchange sends.
func receive(u *net.UnixConn) (what byte, body []byte, file *os.File, err error) {
	var head [5]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := u.ReadMsgUnix(head[:], oob)
	if err == nil && n == 0 || errors.Is(err, io.EOF) {
		err = io.EOF // bare
	}
	if err != nil {
		return 0, nil, nil, err
	}
	file = fileIn(oob[:oobn])
	defer func() {
		if err != nil && file != nil {
			file.Close()
			file = nil
		}
	}()
	if _, err = io.ReadFull(u, head[n:]); err != nil {
		return 0, nil, file, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxPassed {
		return 0, nil, file, fmt.Errorf("sannet: a connection of %d bytes", size)
	}
	body, err = io.ReadAll(io.LimitReader(u, int64(size)))
	if err == nil && len(body) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	return head[0], body, file, err
}

// fileIn is the socket in a control message, nil if there is none.
func fileIn(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) > 0 {
			for _, fd := range fds[1:] {
				unix.Close(fd)
			}
			unix.CloseOnExec(fds[0])
			return os.NewFile(uintptr(fds[0]), "connection")
		}
	}
	return nil
}

// answer tells the sender how it went.
func answer(u *net.UnixConn, err error) error {
	text := ""
	if err != nil {
		text = err.Error()
		text = text[:min(len(text), 1<<10)]
	}
	_, werr := u.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...))
	return werr
}
