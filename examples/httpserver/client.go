package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"time"

	"sansock/sanhttp"
)

// runBoth serves on l, and is its client. Either's failure ends both.
func runBoth(ctx context.Context, cancel func(), o options, l net.Listener) error {
	cert, err := o.certificate(l.Addr())
	if err != nil {
		l.Close()
		return err
	}
	var roots *x509.CertPool
	if cert != nil {
		roots = x509.NewCertPool()
		roots.AddCert(cert.Leaf)
	}
	served := make(chan error, 1)
	unlimited := o
	unlimited.requests = 0
	go func() {
		defer cancel()
		served <- serve(ctx, unlimited, l, cert)
	}()
	o.addr = reachable(l.Addr())
	err = runClient(ctx, o, roots)
	cancel()
	return errors.Join(err, <-served)
}

// reachable is the address of a listener for a client on this host.
func reachable(a net.Addr) string {
	ta := *a.(*net.TCPAddr)
	if ta.IP.IsUnspecified() {
		ta.IP = net.IPv4(127, 0, 0, 1)
	}
	return ta.String()
}

// runClient sends requests, checks the answers and prints them. Without roots it trusts the certificate in the file.
func runClient(ctx context.Context, o options, roots *x509.CertPool) error {
	transport := sanhttp.NewTransport(nil)
	transport.DialContext = o.dial
	defer transport.CloseIdleConnections()
	scheme := "http"
	if o.tls {
		scheme = "https"
		if roots == nil {
			block, err := os.ReadFile(o.cert)
			if err != nil {
				return err
			}
			roots = x509.NewCertPool()
			if !roots.AppendCertsFromPEM(block) {
				return fmt.Errorf("%s: no certificate in PEM", o.cert)
			}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	url := scheme + "://" + o.addr
	requests := o.requests
	if requests == 0 {
		requests = 3
	}
	for i := range requests {
		if err := request(ctx, client, url, i); err != nil {
			return err
		}
	}
	return nil
}

// request sends one: first a plain GET, then larger and larger echoes.
func request(ctx context.Context, client *http.Client, url string, i int) error {
	var path string
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(g httptrace.GotConnInfo) { path = pathOf(g.Conn) },
	})
	method, sent := "GET", []byte(nil)
	if i > 0 {
		method, url, sent = "POST", url+"/echo", bytes.Repeat([]byte("sansock "), 1<<min(i, 20))
	}
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	r, err := client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, r.Status)
	}
	if i > 0 && !bytes.Equal(sent, got) {
		return fmt.Errorf("%s %s: %d bytes came back changed", method, url, len(sent))
	}
	fmt.Printf("%s %s: %s, %s, %d bytes in %v over %s\n", method, url, r.Proto, r.Status, len(got),
		time.Since(start).Round(time.Microsecond), path)
	return nil
}
