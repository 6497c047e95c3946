package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// pathKey is the key of a connection's path in the context of its requests.
type pathKey struct{}

// runServer serves until ctx ends or the number of requests is reached, and finishes what is under way.
func runServer(ctx context.Context, o options, l net.Listener) error {
	cert, err := o.certificate(l.Addr())
	if err != nil {
		l.Close()
		return err
	}
	return serve(ctx, o, l, cert)
}

// serve is runServer with a certificate, which is nil without TLS.
func serve(ctx context.Context, o options, l net.Listener, cert *tls.Certificate) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var served atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s over %v\n", r.Method, r.URL.Path, r.Context().Value(pathKey{}))
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		// HTTP/1.1 drops what is left of the request once the answer begins, so all of it is read first.
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Write(b)
	})
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(w, r)
			if served.Add(1) == int64(o.requests) {
				stop()
			}
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, pathKey{}, pathOf(c))
		},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(os.Stderr, "httpserver: ", 0),
	}
	scheme := "http"
	if cert != nil {
		scheme = "https"
	}
	// Before the first request, so that this is the first line.
	fmt.Printf("serving %s://%v/\n", scheme, l.Addr())
	ended := make(chan error, 1)
	go func() {
		if cert == nil {
			ended <- srv.Serve(l)
			return
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*cert}}
		ended <- srv.ServeTLS(l, "", "")
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Requests under way finish, within a limit.
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := srv.Shutdown(grace)
	if serr := <-ended; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	fmt.Printf("served %d requests\n", served.Load())
	return err
}

// certificate makes a certificate for the address and this host, and writes it to the file asked for. It is nil
// without TLS.
func (o options) certificate(a net.Addr) (*tls.Certificate, error) {
	if !o.tls {
		return nil, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "sansock example"},
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if ta, ok := a.(*net.TCPAddr); ok && !ta.IP.IsUnspecified() {
		template.IPAddresses = append(template.IPAddresses, ta.IP)
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if o.cert != "" {
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if err := os.WriteFile(o.cert, block, 0o644); err != nil {
			return nil, err
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
