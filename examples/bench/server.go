package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Every connection starts with a hello of the client, which says what the server shall do on it, and the
// server's answer:
//
//	hello   magic(6) version(1) job(1) size(8, little-endian)
//	answer  magic(6) version(1) verdict(1)
const (
	magic      = "sbench"
	version    = 1
	helloSize  = 16
	answerSize = 8
)

// job is what a server does on a connection.
type job byte

const (
	jobEcho        job = iota + 1 // sends every message of the size back
	jobStream                     // reads batches, and tells how much came
	jobStreamTouch                // likewise, and looks at every cache line
	jobReaders                    // reads batches with as many goroutines as the size says, and tells how much came
	jobSource                     // writes messages of the size, without end
	jobOpen                       // nothing, until the client closes
	jobHTTP                       // HTTP/1.1
	jobControl                    // answers questions about the server
	jobs
)

// verdict is what a server thinks of a hello.
type verdict byte

const (
	verdictOK verdict = iota
	verdictVersion
	verdictJob
	verdictSize
	verdictMemory
	verdicts
)

var verdictText = [verdicts]string{
	"ok", "it is of another version", "it does not know the workload", "it takes no messages of this size",
	"it has no memory left for buffers",
}

const (
	maxSize      = 64 << 20 // of a message
	maxMemory    = 1 << 30  // of the buffers of all connections of a server
	helloTimeout = 10 * time.Second
	acceptPause  = 5 * time.Millisecond
)

// greet says hello on a fresh connection and reads the answer.
func greet(c net.Conn, j job, size int) error {
	h := make([]byte, 0, helloSize)
	h = append(h, magic...)
	h = append(h, version, byte(j))
	h = binary.LittleEndian.AppendUint64(h, uint64(size))
	if _, err := c.Write(h); err != nil {
		return err
	}
	a := make([]byte, answerSize)
	if _, err := io.ReadFull(c, a); err != nil {
		return fmt.Errorf("no answer to the hello: %w", err)
	}
	v := verdict(a[7])
	switch {
	case string(a[:6]) != magic || v >= verdicts:
		return fmt.Errorf("%v is no bench server", c.RemoteAddr())
	case v != verdictOK:
		return fmt.Errorf("the server refuses: %s", verdictText[v])
	}
	return nil
}

// server does the jobs of clients, on the connections of any number of listeners.
type server struct {
	web      *http.Server
	webQueue *queue
	memory   atomic.Int64 // in use by buffers
	wg       sync.WaitGroup

	mu        sync.Mutex // guards what follows
	closed    bool
	listeners []net.Listener
	conns     map[net.Conn]job
	gone      chan struct{} // closed, and replaced, when a connection is gone
}

func newServer() *server {
	s := &server{webQueue: newQueue(), conns: make(map[net.Conn]job), gone: make(chan struct{})}
	s.web = &http.Server{
		Handler: http.HandlerFunc(serveBody),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				s.forget(c)
			}
		},
	}
	s.wg.Go(func() { s.web.Serve(s.webQueue) })
	return s
}

// serve accepts from l until the server is closed.
func (s *server) serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return
	}
	s.listeners = append(s.listeners, l)
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as too many open files
				time.Sleep(acceptPause)
				continue
			}
			if !s.remember(c, 0) {
				c.Close()
				return
			}
			s.wg.Go(func() { s.handle(c) })
		}
	})
}

// remember notes the job of a connection, and reports whether the server is open.
func (s *server) remember(c net.Conn, j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.conns[c] = j
	}
	return !s.closed
}

func (s *server) forget(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	close(s.gone)
	s.gone = make(chan struct{})
}

// settle waits until the connections of earlier measurements are gone, but for no longer than a second.
func (s *server) settle() {
	timeout := time.NewTimer(time.Second)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		busy, gone := 0, s.gone
		for _, j := range s.conns {
			if j != jobControl {
				busy++
			}
		}
		s.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-gone:
		case <-timeout.C:
			return
		}
	}
}

// close ends everything, and waits for it.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.web.Close()
	s.wg.Wait()
}

// handle serves one connection.
func (s *server) handle(c net.Conn) {
	if !s.work(c) {
		c.Close()
		s.forget(c)
	}
}

// work does the job of a connection, until it ends or something is not as agreed. It reports whether the connection
// is the web server's now.
func (s *server) work(c net.Conn) (handedOver bool) {
	j, size, v, err := readHello(c)
	if err != nil {
		return false
	}
	buf := bufferSize(j, size)
	defer s.memory.Add(-buf)
	if s.memory.Add(buf) > maxMemory && v == verdictOK {
		v = verdictMemory
	}
	answer := append([]byte(magic), version, byte(v))
	if _, err := c.Write(answer); err != nil || v != verdictOK || !s.remember(c, j) {
		return false
	}
	switch j {
	case jobEcho:
		serveEcho(c, make([]byte, buf))
	case jobStream, jobStreamTouch:
		serveStream(c, make([]byte, buf), j == jobStreamTouch)
	case jobReaders:
		serveReaders(c, size, make([]byte, buf))
	case jobSource:
		serveSource(c, make([]byte, buf))
	case jobOpen:
		c.Read(make([]byte, 1))
	case jobHTTP:
		return s.webQueue.put(c)
	case jobControl:
		s.serveControl(c)
	}
	return false
}

// readHello reads what a client wants. The error is for connections that deserve no answer.
func readHello(c net.Conn) (j job, size int, v verdict, err error) {
	h := make([]byte, helloSize)
	c.SetReadDeadline(time.Now().Add(helloTimeout))
	if _, err := io.ReadFull(c, h); err != nil {
		return 0, 0, 0, err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return 0, 0, 0, err
	}
	if string(h[:6]) != magic {
		return 0, 0, 0, errors.New("no hello")
	}
	j = job(h[7])
	n := binary.LittleEndian.Uint64(h[8:])
	switch {
	case h[6] != version:
		return j, 0, verdictVersion, nil
	case j == 0 || j >= jobs:
		return j, 0, verdictJob, nil
	case n > maxSize || n == 0 && j != jobOpen && j != jobHTTP && j != jobControl || n > maxReaders && j == jobReaders:
		return j, 0, verdictSize, nil
	}
	return j, int(n), verdictOK, nil
}

// bufferSize is how much memory a job needs.
func bufferSize(j job, size int) int64 {
	switch j {
	case jobEcho, jobSource:
		return int64(size)
	case jobReaders:
		return int64(size) * readSize
	case jobStream, jobStreamTouch:
		return int64(max(size, 64<<10))
	}
	return 0
}
