//go:build unix

// Restart is a web server that is replaced by a new process of itself without any client noticing: on SIGHUP it starts the
// program anew, hands the listening socket and every connection over, each between two requests, and exits. So a new version can
// be installed under the load of clients that keep their connections, over the SAN and over TCP.
//
//	go run ./examples/restart -addr 127.0.0.1:8080
//	curl -d hello http://127.0.0.1:8080/
//	kill -HUP PID         the process that it has printed
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"sansock/sannet"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "`address` to listen on")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("restart: ")
	if err := run(*addr); err != nil {
		log.Fatal(err)
	}
}

// run serves until the process is replaced, or told to end.
func run(addr string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)

	parent, l, err := listen(addr)
	if err != nil {
		return err
	}
	s := newServer(l, http.HandlerFunc(echo))
	go s.receive(parent)
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	fmt.Printf("process %d listens on %v\n", os.Getpid(), l.Addr())
	for {
		select {
		case err := <-served:
			return err
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				err := s.restart()
				if err == nil {
					return nil
				}
				log.Print("not restarted: ", err)
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			return s.http.Shutdown(ctx)
		}
	}
}

// listen listens on addr or, in a process that replaces another, where that has listened. parent is the socket to the other.
func listen(addr string) (parent *net.UnixConn, l *sannet.Listener, err error) {
	var nl net.Listener
	if os.Getenv(replaces) == "" {
		nl, err = sannet.Listen("tcp", addr)
	} else if parent, err = takeOver(); err == nil {
		nl, err = sannet.FileListener(os.NewFile(listenerFD, "listener"))
	}
	if err != nil {
		return nil, nil, err
	}
	return parent, nl.(*sannet.Listener), nil
}

// echo answers with the body of the request, after a while if the query says so, and tells which process it is.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if d, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Process", strconv.Itoa(os.Getpid()))
	w.Write(body)
}
