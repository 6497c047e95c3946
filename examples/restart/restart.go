//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sansock/sannet"
)

// A process that replaces another has replaces in its environment, the listening socket as listenerFD, and a socket to the other
// process as parentFD.
const (
	replaces   = "RESTART_REPLACES"
	listenerFD = 3
	parentFD   = 4
)

// Bounds of a restart.
const (
	startTime = 10 * time.Second // for the new process to start
	drainTime = 30 * time.Second // for the requests that are being served
)

// restart starts a new process, and returns when that has everything. If it fails, this process goes on.
func (s *server) restart() error {
	u, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer u.Close()
	defer theirs.Close()
	socket, err := s.l.TCPFile()
	if err != nil {
		return err
	}
	defer socket.Close()
	select {
	case <-s.received:
	case <-time.After(startTime):
		return errors.New("the process before is still there")
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), replaces+"="+fmt.Sprint(os.Getpid()))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{socket, theirs}
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()

	// The new process is there; it listens when this one does not any more. In between, clients wait in the socket.
	u.SetDeadline(time.Now().Add(startTime))
	if _, err := io.ReadFull(u, make([]byte, 1)); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("the new process: %w", err)
	}
	u.SetDeadline(time.Time{})
	s.l.Drain()
	if _, err := u.Write([]byte{1}); err != nil {
		log.Print("the new process: ", err) // it has died: who is connected is still served
	}

	// One connection after the other, each when its request is answered.
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var turn sync.Mutex
	s.leave(func(c net.Conn) error {
		turn.Lock()
		defer turn.Unlock()
		err := sannet.SendConn(ctx, u, c)
		if err != nil {
			log.Print(err)
		}
		return err
	})
	served := s.served
	for (s.left() > 0 || served != nil) && ctx.Err() == nil {
		select {
		case <-s.gone:
		case <-served:
			served = nil // what had arrived is in conns
		case <-ctx.Done():
		}
	}
	ended, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	s.http.Shutdown(ended) // who has not been answered until now
	return nil
}

// takeOver tells the process before that this one is there, and waits until it does not listen any more.
func takeOver() (*net.UnixConn, error) {
	f := os.NewFile(parentFD, "parent")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the parent's socket is no unix socket")
	}
	if _, err := u.Write([]byte{1}); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(u, make([]byte, 1))
	return u, err
}

// receive takes in the connections of the process before, until that has none left.
func (s *server) receive(u *net.UnixConn) {
	defer close(s.received)
	if u == nil {
		return
	}
	defer u.Close()
	for {
		c, err := sannet.ReceiveConn(context.Background(), u)
		var lost *net.OpError
		switch {
		case err == nil:
			s.in <- c
		case errors.As(err, &lost) && lost.Op == "resume":
			log.Print(err)
		case err == io.EOF:
			return
		default:
			log.Print("the process before: ", err)
			return
		}
	}
}

// socketPair returns two ends of a stream, the second for another process.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	ours := os.NewFile(uintptr(fds[0]), "socketpair")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "socketpair")
	c, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}
