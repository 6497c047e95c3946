package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// postgres is a server with a database of its own, that goes with it.
type postgres struct {
	dir    string
	socket string // its Unix socket: all that it listens on
	cmd    *exec.Cmd
}

var errNotInstalled = errors.New("PostgreSQL's initdb and postgres are not installed (Debian: apt-get install postgresql)")

// find returns where a program of PostgreSQL's is.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) == 0 {
		return "", errNotInstalled
	}
	return found[len(found)-1], nil
}

func startPostgres() (_ *postgres, err error) {
	initdb, err := find("initdb")
	if err != nil {
		return nil, err
	}
	server, err := find("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg") // short, as the path of a socket has to be
	if err != nil {
		return nil, err
	}
	pg := &postgres{dir: dir, socket: filepath.Join(dir, ".s.PGSQL.5432")}
	defer func() {
		if err != nil {
			pg.stop()
		}
	}()
	command := func(program string, args ...string) *exec.Cmd { return exec.Command(program, args...) }
	if os.Geteuid() == 0 { // which PostgreSQL does not run as
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, err
		}
		if err := os.Chown(dir, uid, -1); err != nil {
			return nil, err
		}
		command = func(program string, args ...string) *exec.Cmd {
			return exec.Command("setpriv", append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--", program}, args...)...)
		}
	}
	data := filepath.Join(dir, "data")
	cmd := command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	cmd = command(server, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pg.cmd = cmd
	for range 3000 { // there is nothing to wait on but this file
		status, _ := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		if bytes.Contains(status, []byte("\nready")) {
			return pg, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("PostgreSQL does not start: %s", text)
}

// stop ends the server and removes its database.
func (pg *postgres) stop() {
	if pg.cmd != nil {
		pg.cmd.Process.Signal(syscall.SIGINT) // fast shutdown
		pg.cmd.Wait()
	}
	os.RemoveAll(pg.dir)
}

// forward connects what l accepts to the Unix socket, until l is closed and the connections are over.
func forward(l net.Listener, socket string) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			pc, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			defer pc.Close()
			back := make(chan struct{})
			go func() {
				defer close(back)
				io.Copy(c, pc)
				c.(interface{ CloseWrite() error }).CloseWrite()
			}()
			io.Copy(pc, c)
			pc.(*net.UnixConn).CloseWrite()
			<-back
		})
	}
}
