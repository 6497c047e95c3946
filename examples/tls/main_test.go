package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
	"sansock/sanhttp"
	"sansock/sannet"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Equal(t, "path: "+pathtest.Want()+"\nanswer: \"who am I?\": you are alice, from 127.0.0.1, by TLS 1.3\n", out.String())
}

// configs returns those of a server and of a client.
func configs(t *testing.T) (server, client *tls.Config) {
	ca, err := newAuthority()
	require.NoError(t, err)
	server, err = ca.server()
	require.NoError(t, err)
	client, err = ca.client("bob")
	require.NoError(t, err)
	return server, client
}

// pair is a connection without a handshake yet.
func pair(t *testing.T, serverConfig, clientConfig *tls.Config) (client, server *tls.Conn) {
	l := pathtest.Listen(t)
	c, err := sannet.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	s, err := l.Accept()
	require.NoError(t, err)
	client, server = tls.Client(c, clientConfig), tls.Server(s, serverConfig)
	pathtest.Check(t, client)
	for _, end := range []*tls.Conn{client, server} {
		end.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { end.Close() })
	}
	return client, server
}

// shake does the handshake of both.
func shake(client, server *tls.Conn) (clientErr, serverErr error) {
	done := make(chan error)
	go func() { done <- client.Handshake() }()
	serverErr = server.Handshake()
	return <-done, serverErr
}

// TestVersions: bytes pass unchanged, a session is resumed, and each side reads the end of the other alone.
func TestVersions(t *testing.T) {
	serverConfig, clientConfig := configs(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		clientConfig := clientConfig.Clone()
		clientConfig.MaxVersion = version
		clientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for round := range 2 {
			client, server := pair(t, serverConfig, clientConfig)
			clientErr, serverErr := shake(client, server)
			require.NoError(t, clientErr)
			require.NoError(t, serverErr)
			assert.Equal(t, version, server.ConnectionState().Version)
			assert.Equal(t, "bob", server.ConnectionState().PeerCertificates[0].Subject.CommonName)
			assert.Equal(t, round == 1, client.ConnectionState().DidResume)
			for _, ends := range [][2]*tls.Conn{{client, server}, {server, client}} {
				sent := bytes.Repeat([]byte("0123456789"), 200_000)
				done := make(chan error, 1)
				go func() {
					_, err := ends[0].Write(sent)
					if err == nil {
						err = ends[0].CloseWrite()
					}
					done <- err
				}()
				got, err := io.ReadAll(ends[1])
				require.NoError(t, err)
				require.NoError(t, <-done)
				assert.True(t, bytes.Equal(sent, got))
			}
			assert.NoError(t, client.Close())
			assert.NoError(t, server.Close())
		}
	}
}

// TestStranger: a client without a certificate, and one with another authority's, are told what is wrong.
func TestStranger(t *testing.T) {
	serverConfig, clientConfig := configs(t)
	_, stranger := configs(t)
	stranger.RootCAs = clientConfig.RootCAs
	anonymous := clientConfig.Clone()
	anonymous.Certificates = nil
	for want, config := range map[string]*tls.Config{"tls: certificate required": anonymous, "tls: unknown certificate authority": stranger} {
		client, server := pair(t, serverConfig, config)
		_, err := shake(client, server)
		assert.Error(t, err)
		server.Close()
		_, err = client.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "remote error: "+want)
	}
	serverConfig, _ = configs(t) // whom the client does not know
	client, server := pair(t, serverConfig, clientConfig)
	clientErr, serverErr := shake(client, server)
	assert.ErrorContains(t, clientErr, "certificate signed by unknown authority")
	assert.ErrorContains(t, serverErr, "remote error: tls: bad certificate")
}

// TestTruncation: a connection that ends within a record is told from one that ends after the last.
func TestTruncation(t *testing.T) {
	client, server := shaken(t)
	server.NetConn().Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
	server.NetConn().Close()
	_, err := client.Read(make([]byte, 1))
	assert.Equal(t, io.ErrUnexpectedEOF, err)
	client, server = shaken(t)
	server.Close()
	_, err = client.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
}

// shaken is a pair after the handshake.
func shaken(t *testing.T) (client, server *tls.Conn) {
	serverConfig, clientConfig := configs(t)
	client, server = pair(t, serverConfig, clientConfig)
	clientErr, serverErr := shake(client, server)
	require.NoError(t, clientErr)
	require.NoError(t, serverErr)
	return client, server
}

func TestDeadline(t *testing.T) {
	client, server := shaken(t)
	client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	// A read that timed out does no harm.
	client.SetReadDeadline(time.Now().Add(30 * time.Second))
	server.Write([]byte("x"))
	_, err = client.Read(make([]byte, 1))
	assert.NoError(t, err)
	client.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_, err = client.Write(make([]byte, 64<<20))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestCloseWhileWriting: Close does not wait for a Write that the peer lets wait.
func TestCloseWhileWriting(t *testing.T) {
	client, server := shaken(t)
	started, done := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		_, err := client.Write(make([]byte, 64<<20))
		done <- err
	}()
	<-started
	_, err := io.ReadFull(server, make([]byte, 100_000)) // it is at it
	require.NoError(t, err)
	client.Close()
	assert.ErrorIs(t, <-done, net.ErrClosed)
}

// TestHTTP2: a web server that wants certificates.
func TestHTTP2(t *testing.T) {
	serverConfig, clientConfig := configs(t)
	l := pathtest.Listen(t)
	srv := &http.Server{TLSConfig: serverConfig, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto+" "+r.TLS.PeerCertificates[0].Subject.CommonName+" ")
		io.Copy(w, r.Body)
	})}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(l, "", "") }()
	transport := sanhttp.NewTransport(nil)
	transport.TLSClientConfig = clientConfig
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for range 3 {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(g httptrace.GotConnInfo) { pathtest.Check(t, g.Conn) },
		})
		body := strings.Repeat("x", 1<<20)
		req, err := http.NewRequestWithContext(ctx, "POST", "https://"+l.Addr().String(), strings.NewReader(body))
		require.NoError(t, err)
		r, err := client.Do(req)
		require.NoError(t, err)
		got, err := io.ReadAll(r.Body)
		r.Body.Close()
		require.NoError(t, err)
		assert.Equal(t, "HTTP/2.0 bob "+body, string(got))
	}
	transport.CloseIdleConnections()
	require.NoError(t, srv.Shutdown(context.Background()))
	assert.ErrorIs(t, <-served, http.ErrServerClosed)
}
