package sannet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"time"

	"sansock/emu"
	"sansock/provider"
	"sansock/sanhttp"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// An echo server and a client of it.
func Example() {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		io.Copy(c, c)
	}()

	c, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "hello, SAN")
	c.(interface{ CloseWrite() error }).CloseWrite()
	io.Copy(os.Stdout, c)
	// Output: hello, SAN
}

// InfoOf tells which path a connection took, also from below TLS.
func ExampleInfoOf() {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	info, ok := sannet.InfoOf(c)
	fmt.Println(ok, info)
	info, ok = sannet.InfoOf(tls.Client(c, &tls.Config{ServerName: "localhost"}))
	fmt.Println(ok, info)
	// Output:
	// true san via emu
	// true san via emu
}

// A web server that takes SAN and TCP connections on one port, and a client that prefers the SAN.
func Example_http() {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.URL.Path)
	})}
	go srv.Serve(l)
	defer srv.Shutdown(context.Background())

	defer sanhttp.Client.CloseIdleConnections()
	r, err := sanhttp.Client.Get("http://" + l.Addr().String() + "/san")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	io.Copy(os.Stdout, r.Body)
	// Output: hello from /san
}

// TLS runs on top as it does on TCP.
func ExampleListen_tls() {
	// A server's certificate, and a client's configuration that trusts it, borrowed from httptest.
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	serverConfig := &tls.Config{Certificates: borrowed.TLS.Certificates}
	clientConfig := &tls.Config{
		RootCAs:    borrowed.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		ServerName: "example.com",
	}

	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := tls.NewListener(l, serverConfig).Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "a secret over the SAN")
	}()

	raw, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	c := tls.Client(raw, clientConfig)
	defer c.Close()
	io.Copy(os.Stdout, c)
	// Output: a secret over the SAN
}

// Urgent data passes data that the peer has not read, here a call to stop.
func ExampleConn_WriteUrgent() {
	l, err := sannet.Listen("san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := sannet.Dial("san", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "a long list of work")
	c.(*sannet.Conn).WriteUrgent(context.Background(), []byte("stop"))

	s, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m, err := s.(*sannet.Conn).ReadUrgent(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, with %d bytes still to be read\n", m.Data, m.Ahead)
	io.CopyN(io.Discard, s, m.Ahead) // up to the mark
	// Output: stop, with 19 bytes still to be read
}

// A connection goes on elsewhere, usually in another process, to which SendConn passes it; the peer does not notice.
// The program examples/restart replaces a whole web server that way.
func ExampleConn_Handover() {
	l, err := sannet.Listen("san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	client, err := sannet.Dial("san", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "hello")

	s, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	state, err := s.(*sannet.Conn).Handover(context.Background())
	if err != nil {
		log.Fatal(err) // s is as it was
	}

	c, err := sannet.Resume(context.Background(), state)
	if err != nil {
		log.Fatal(err)
	}
	io.CopyN(c, c, 5) // an echo
	c.Close()
	io.Copy(os.Stdout, client)
	// Output: hello
}

// Data that a program makes in a Buffer is sent from where it is, and read where it arrived.
func ExampleConn_NewBuffer() {
	l, err := sannet.Listen("san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := sannet.Dial("san", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		san := c.(*sannet.Conn)
		b, err := san.NewBuffer(64)
		if err != nil {
			log.Fatal(err)
		}
		n := copy(b.Bytes(), "made in place")
		if _, err := san.WriteBuffer(b, n); err != nil { // releases b
			log.Fatal(err)
		}
	}()

	c, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for {
		b, err := c.(*sannet.Conn).ReadBuffer()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", b.Bytes())
		b.Release()
	}
	// Output: made in place
}

// A Switch of the program's own chooses the SANs instead of SANNET_PROVIDERS: here an emulated one with the latency of
// a long wire, to try a program on.
func ExampleDialer() {
	p, err := emu.New(emu.Config{Link: emu.Link{Latency: time.Millisecond}})
	if err != nil {
		log.Fatal(err)
	}
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
	defer sw.Close()

	lc := sannet.ListenConfig{Switch: sw}
	l, err := lc.Listen(context.Background(), "san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	d := sannet.Dialer{Switch: sw, Timeout: 10 * time.Second}
	c, err := d.Dial("san", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	info, _ := sannet.InfoOf(c)
	fmt.Println(info)
	// Output: san via emu
}

// The networks that begin with san insist on a SAN, where those that begin with tcp fall back.
func ExampleDial_san() {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a server that knows no SAN
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	_, err = sannet.Dial("san", l.Addr().String())
	fmt.Println("san:", errors.Is(err, syscall.ECONNREFUSED))

	c, err := sannet.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	info, _ := sannet.InfoOf(c)
	fmt.Println("tcp:", info.Path, "as there is", info.Reason)
	// Output:
	// san: true
	// tcp: tcp as there is no listener on the SAN
}
