// Package sanhttp is net/http over a system-area network (SAN) where there is one, and over TCP
// where not:
//
//	r, err := sanhttp.Client.Get("http://db1:8080/")
//	err := sanhttp.ListenAndServe(":8080", handler)
//
// Nothing else is different from http.DefaultClient and http.ListenAndServe: proxies, HTTP/2,
// time limits and the hooks of net/http/httptrace are as there. A server with options of its own
// needs no more than a listener of package sannet, such as http.Server.Serve and ServeTLS take,
// and a client with options of its own starts from NewTransport.
package sanhttp

import (
	"net/http"
	"time"

	"sansock/sannet"
)

// Transport is http.DefaultTransport with connections of package sannet. It keeps its own idle
// connections.
var Transport http.RoundTripper = NewTransport(nil)

// Client is http.DefaultClient with Transport.
var Client = &http.Client{Transport: Transport}

// NewTransport returns a Transport with all the settings of http.DefaultTransport, which may be
// changed before it is used. Its connections are made by d; nil stands for the limits of time
// that http.DefaultTransport has.
func NewTransport(d *sannet.Dialer) *http.Transport {
	if d == nil {
		d = &sannet.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           d.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// ListenAndServe is http.ListenAndServe for SAN and TCP clients on one port.
func ListenAndServe(addr string, handler http.Handler) error {
	if addr == "" {
		addr = ":http"
	}
	l, err := sannet.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	return http.Serve(l, handler)
}

// ListenAndServeTLS is http.ListenAndServeTLS, likewise, with HTTP/2.
func ListenAndServeTLS(addr, certFile, keyFile string, handler http.Handler) error {
	if addr == "" {
		addr = ":https"
	}
	l, err := sannet.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	return http.ServeTLS(l, handler, certFile, keyFile)
}
