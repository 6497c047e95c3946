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
var maxPassed = 1 << 30 // a variable for tests

// SendConn passes c to the process at the other end of u, a stream, that calls ReceiveConn, and returns when that has
// it. c is a *Conn, which goes on there as Conn.Handover describes, or a *net.TCPConn, whose socket is sent. No other
// data may be on u meanwhile.
//
// c is closed when SendConn returns nil. It is closed, too, and the connection lost, after an error that is net.ErrClosed. After
// any other the connection is here as it was, c can be used on, and be sent to another process: where it had left, it has come
// back. Calls that waited on a *Conn have ended with net.ErrClosed then.
//
// A *net.TCPConn is lost where the other process may still take the socket, which is when ctx ends before the answer. A *Conn is lost
// where its peer has gone, or where the other process had gone on with it, and has failed since.
//
// After an error u is to be closed, unless the error is errors.ErrUnsupported or that of Handover: the connection may still be in it.
// The error is syscall.EMSGSIZE where there is more than 1 GiB of unread data, and on Windows, which has no such sockets, always
// errors.ErrUnsupported.
func SendConn(ctx context.Context, u *net.UnixConn, c net.Conn) error {
	switch c := c.(type) {
	case *Conn:
		return sendSAN(ctx, u, c)
	case *net.TCPConn:
		return sendTCP(ctx, u, c)
	}
	return fmt.Errorf("sannet: a %T cannot be passed: %w", c, errors.ErrUnsupported)
}

func sendSAN(ctx context.Context, u *net.UnixConn, c *Conn) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	state, err := c.leave(ctx)
	if err != nil {
		return err
	}
	if len(state) > maxPassed {
		return c.back(state, os.NewSyscallError("write", syscall.EMSGSIZE))
	}
	if _, err = exchange(ctx, u, passSAN, state, nil); err != nil {
		return c.back(state, err)
	}
	c.closed.Store(true)
	return nil
}

func sendTCP(ctx context.Context, u *net.UnixConn, c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	restore := keepLinger(raw)
	settled, err := exchange(ctx, u, passTCP, nil, raw)
	switch {
	case err == nil:
		return c.Close()
	case settled:
		if restore() != nil { // it was closed meanwhile
			err = &lostError{err}
		}
	default:
		c.SetLinger(0)
		c.Close()
		err = &lostError{err}
	}
	return &net.OpError{Op: "handover", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// keepLinger returns what sets the linger option to what it is now: another process with the socket drops it by that option.
func keepLinger(raw syscall.RawConn) (restore func() error) {
	var l *unix.Linger
	raw.Control(func(fd uintptr) { l, _ = unix.GetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER) })
	return func() error {
		return raw.Control(func(fd uintptr) {
			if l != nil {
				unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, l)
			}
		})
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

// exchange sends a connection, and waits for the answer. Where it fails, settled says that the other process has not taken, and
// will not take, the connection.
func exchange(ctx context.Context, u *net.UnixConn, what byte, body []byte, socket syscall.RawConn) (settled bool, err error) {
	defer bound(ctx, u)()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	head := binary.LittleEndian.AppendUint32([]byte{what}, uint32(len(body)))
	n := 0
	if socket == nil {
		n, err = u.Write(head)
	} else {
		cerr := socket.Control(func(fd uintptr) { n, _, err = u.WriteMsgUnix(head, unix.UnixRights(int(fd)), nil) })
		if err == nil {
			err = cerr
		}
	}
	if err != nil {
		return n <= 0, err
	}
	if len(body) > 0 {
		if _, err := u.Write(body); err != nil {
			return false, err
		}
	}
	var size [2]byte
	if _, err := io.ReadFull(u, size[:]); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = syscall.ECONNRESET
		}
		return errors.Is(err, syscall.ECONNRESET), err // the other process is gone
	}
	m := binary.LittleEndian.Uint16(size[:])
	if m == 0 {
		return true, nil
	}
	text := make([]byte, m)
	if _, err := io.ReadFull(u, text); err != nil {
		return true, err
	}
	return true, fmt.Errorf("the receiver: %s", text)
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
	if uint64(size) > uint64(maxPassed) {
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
