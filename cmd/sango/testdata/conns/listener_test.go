package conns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// reusing listens with SO_REUSEPORT.
func reusing(t *testing.T, addr string) net.Listener {
	t.Helper()
	lc := net.ListenConfig{Control: setter(syscall.SOL_SOCKET, 15, 1)}
	l := must[net.Listener](t)(lc.Listen(t.Context(), "tcp", addr))
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c := must[net.Conn](t)(net.Dial("tcp", l.Addr().String()))
	t.Cleanup(func() { c.Close() })
	return c
}

// Two listeners of one port share what comes; where one closes the other has everything, as when
// a server loads its configuration anew.
func TestReusePort(t *testing.T) {
	a := reusing(t, "127.0.0.1:0")
	b := reusing(t, a.Addr().String())
	got := make(chan net.Listener, 100)
	serve := func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			got <- l
		}
	}
	go serve(a)
	go serve(b)
	for range 50 {
		overSAN(t, dial(t, a))
		<-got
	}
	a.Close()
	for range 50 {
		overSAN(t, dial(t, b))
		if l := <-got; l != b {
			t.Fatal("the listener that was closed has accepted")
		}
	}
}

func TestListenerOptions(t *testing.T) {
	lc := net.ListenConfig{Control: setter(syscall.IPPROTO_IP, syscall.IP_TOS, 0x10)}
	l := must[net.Listener](t)(lc.Listen(t.Context(), "tcp4", "127.0.0.1:0"))
	defer l.Close()
	overTCP(t, dial(t, l), "no listener")
}

func TestAcceptDeadline(t *testing.T) {
	l := listen(t)
	l.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	l.SetDeadline(time.Time{})
	c := dial(t, l)
	overSAN(t, c)
	must[net.Conn](t)(l.Accept())
}

func TestAcceptClose(t *testing.T) {
	l := listen(t)
	done := make(chan error)
	go func() { _, err := l.Accept(); done <- err }()
	time.Sleep(time.Millisecond)
	l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// plainDial connects over TCP, whatever there is.
func plainDial(t *testing.T, l net.Listener) int {
	t.Helper()
	fd := must[int](t)(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	t.Cleanup(func() { syscall.Close(fd) })
	a := l.Addr().(*net.TCPAddr)
	sa := &syscall.SockaddrInet4{Port: a.Port}
	copy(sa.Addr[:], a.IP.To4())
	if err := syscall.Connect(fd, sa); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestBothPaths(t *testing.T) {
	l := listen(t)
	for range 20 {
		fd := plainDial(t, l)
		c := must[net.Conn](t)(l.Accept())
		syscall.Write(fd, []byte("tcp"))
		receive(t, c, "tcp")
		c.Close()
		s := dial(t, l)
		overSAN(t, s)
		c = must[net.Conn](t)(l.Accept())
		send(t, s, "san")
		receive(t, c, "san")
		c.Close()
	}
}

// child is the other process: it serves one connection on the listener that it has inherited, and
// ends when its input does.
func child() {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "child\n")
			c.Close()
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

// A process that does not accept passes its listener to another, which does.
func TestListenerFile(t *testing.T) {
	l := listen(t)
	f := must[*os.File](t)(l.File())
	defer f.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONNS_CHILD=1")
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	in := must[io.WriteCloser](t)(cmd.StdinPipe())
	out := bufio.NewReader(must[io.ReadCloser](t)(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	equal(t, must[string](t)(out.ReadString('\n')), "ready\n")
	for range 10 {
		c := dial(t, l)
		overSAN(t, c)
		equal(t, string(must[[]byte](t)(io.ReadAll(c))), "child\n")
	}
}
