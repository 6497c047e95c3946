package sannet_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// web is a server on a path, and a client of it.
type web struct {
	*httptest.Server
	client *http.Client
}

// serve starts a server. With h2 set it speaks HTTP/2 over TLS, otherwise plain HTTP/1.1.
func serve(t *testing.T, p path, h2 bool, h http.HandlerFunc) web {
	l, err := p.listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener = l
	if h2 {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	client := srv.Client()
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.dial(ctx, network, address)
	}
	client.Timeout = stuck
	return web{srv, client}
}

func body(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	return string(b)
}

// onHTTP runs f over the SAN and the fallback, with HTTP/1.1 and with HTTP/2 over TLS.
func onHTTP(t *testing.T, f func(t *testing.T, p path, h2 bool)) {
	onPaths(t, func(t *testing.T, p path) {
		t.Run("HTTP/1.1", func(t *testing.T) { f(t, p, false) })
		t.Run("HTTP/2", func(t *testing.T) { f(t, p, true) })
	})
}

func TestHTTPKeepAlive(t *testing.T) {
	onHTTP(t, func(t *testing.T, p path, h2 bool) {
		w := serve(t, p, h2, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", r.Proto, b)
		})
		proto := "HTTP/1.1"
		if h2 {
			proto = "HTTP/2.0"
		}
		for i := range 20 {
			var reused bool
			var info sannet.Info
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(g httptrace.GotConnInfo) {
				reused = g.Reused
				info, _ = sannet.InfoOf(g.Conn)
			}})
			req, err := http.NewRequestWithContext(ctx, "POST", w.URL, strings.NewReader(strings.Repeat("x", i*1000)))
			require.NoError(t, err)
			r, err := w.client.Do(req)
			assert.Equal(t, proto+" "+strings.Repeat("x", i*1000), body(t, r, err))
			assert.Equal(t, i > 0, reused)
			assert.Equal(t, map[string]string{"san": "san", "shm": "san", "fallback": "tcp"}[p.name], info.Path.String())
		}
	})
}

func TestHTTPLargeBodies(t *testing.T) {
	onHTTP(t, func(t *testing.T, p path, h2 bool) {
		const size = 5<<20 + 123
		w := serve(t, p, h2, func(w http.ResponseWriter, r *http.Request) {
			h := sha256.New()
			n, err := io.Copy(h, r.Body)
			if err != nil || n != size {
				http.Error(w, fmt.Sprint(n, err), 500)
				return
			}
			w.Header().Set("Sum", fmt.Sprintf("%x", h.Sum(nil)))
			w.Write(pattern(size))
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				// With a length, and chunked.
				for _, b := range []io.Reader{bytes.NewReader(pattern(size)), readerOnly{bytes.NewReader(pattern(size))}} {
					r, err := w.client.Post(w.URL, "application/octet-stream", b)
					if !assert.NoError(t, err) {
						return
					}
					got, err := io.ReadAll(r.Body)
					r.Body.Close()
					assert.NoError(t, err)
					assert.Equal(t, 200, r.StatusCode)
					assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(pattern(size))), r.Header.Get("Sum"))
					assert.True(t, bytes.Equal(pattern(size), got))
				}
			})
		}
		wg.Wait()
	})
}

// TestHTTPStreaming: what one side flushes, the other reads, while both bodies are open.
func TestHTTPStreaming(t *testing.T) {
	onHTTP(t, func(t *testing.T, p path, h2 bool) {
		w := serve(t, p, h2, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if r.ProtoMajor == 1 {
				assert.NoError(t, rc.EnableFullDuplex())
			}
			assert.NoError(t, rc.Flush())
			lines := bufio.NewScanner(r.Body)
			for lines.Scan() {
				fmt.Fprintf(w, "echo %s\n", lines.Text())
				assert.NoError(t, rc.Flush())
			}
		})
		pr, pw := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.URL, pr)
		require.NoError(t, err)
		r, err := w.client.Do(req)
		require.NoError(t, err)
		defer r.Body.Close()
		lines := bufio.NewScanner(r.Body)
		for i := range 50 {
			fmt.Fprintf(pw, "line %d\n", i)
			require.True(t, lines.Scan())
			require.Equal(t, fmt.Sprintf("echo line %d", i), lines.Text())
		}
		pw.Close()
		assert.False(t, lines.Scan())
		assert.NoError(t, lines.Err())
	})
}

// TestHTTPHijack: the server's parked Read is woken with a deadline in the past, and the connection used on.
func TestHTTPHijack(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		w := serve(t, p, false, func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer c.Close()
			_, ok := sannet.InfoOf(c)
			assert.True(t, ok)
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			_, err = io.Copy(c, rw)
			assert.NoError(t, err)
		})
		for range 20 {
			c, err := p.dial(t.Context(), "tcp", w.Listener.Addr().String())
			require.NoError(t, err)
			c.SetDeadline(time.Now().Add(stuck))
			br := bufio.NewReader(c)
			// While the handler runs, the server waits in Read for whatever comes after the request.
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			r, err := http.ReadResponse(br, nil)
			require.NoError(t, err)
			require.Equal(t, 101, r.StatusCode)
			for i := range 10 {
				fmt.Fprintf(c, "message %d\n", i)
				line, err := br.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("message %d\n", i), line)
			}
			require.NoError(t, c.(conn).CloseWrite())
			rest, err := io.ReadAll(br)
			assert.NoError(t, err)
			assert.Empty(t, rest)
			c.Close()
		}
	})
}

// TestHTTPUnreadBody: the server answers and closes without reading the request, and its CloseWrite lets the answer
// through.
func TestHTTPUnreadBody(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		w := serve(t, p, false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, "too much", http.StatusRequestEntityTooLarge)
		})
		c, err := p.dial(t.Context(), "tcp", w.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		c.SetDeadline(time.Now().Add(stuck))
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
		c.Write(make([]byte, 300_000))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		assert.Equal(t, "too much\n", body(t, r, err))
		assert.Equal(t, http.StatusRequestEntityTooLarge, r.StatusCode)
	})
}

// TestHTTPClientGone: the server notices, in its background read, that the client went away.
func TestHTTPClientGone(t *testing.T) {
	onHTTP(t, func(t *testing.T, p path, h2 bool) {
		gone := make(chan struct{})
		started := make(chan struct{})
		w := serve(t, p, h2, func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-r.Context().Done()
			close(gone)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		req, err := http.NewRequestWithContext(ctx, "GET", w.URL, nil)
		require.NoError(t, err)
		_, err = w.client.Do(req)
		assert.ErrorIs(t, err, context.Canceled)
		select {
		case <-gone:
		case <-time.After(stuck):
			t.Fatal("the server does not notice")
		}
	})
}

func TestHTTPTimeouts(t *testing.T) {
	onHTTP(t, func(t *testing.T, p path, h2 bool) {
		w := serve(t, p, h2, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		w.client.Timeout = 20 * time.Millisecond
		_, err := w.client.Get(w.URL)
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		assert.True(t, ne.Timeout())
	})
}

func TestHTTPShutdown(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		started, finish := make(chan struct{}), make(chan struct{})
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(started)
				<-finish
			}
			io.WriteString(w, "done")
		})}
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		tr := &http.Transport{DialContext: p.dial}
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr, Timeout: stuck}
		url := "http://" + l.Addr().String()

		// One idle connection, and one that is busy.
		r, err := client.Get(url)
		assert.Equal(t, "done", body(t, r, err))
		idle, err := p.dial(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		defer idle.Close()
		fmt.Fprintf(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		br := bufio.NewReader(idle)
		r, err = http.ReadResponse(br, nil)
		assert.Equal(t, "done", body(t, r, err))
		slow := make(chan string, 1)
		go func() {
			r, err := client.Get(url + "/slow")
			slow <- body(t, r, err)
		}()
		<-started
		shut := make(chan error, 1)
		go func() { shut <- srv.Shutdown(context.Background()) }()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		idle.SetReadDeadline(time.Now().Add(stuck))
		_, err = br.ReadByte()
		assert.Equal(t, io.EOF, err)
		close(finish)
		assert.Equal(t, "done", <-slow)
		assert.NoError(t, <-shut)
		_, err = client.Get(url)
		assert.Error(t, err)
	})
}

// TestTLS: a connection below TLS, with its close and its half-close.
func TestTLS(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		w := serve(t, p, true, func(http.ResponseWriter, *http.Request) {})
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		tl := tls.NewListener(l, w.TLS)
		defer tl.Close()
		echoed := make(chan error, 1)
		go func() {
			c, err := tl.Accept()
			if err != nil {
				echoed <- err
				return
			}
			defer c.Close()
			_, err = io.Copy(c, c)
			echoed <- err
		}()
		raw, err := p.dial(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		cfg := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
		cfg.ServerName, cfg.NextProtos = "example.com", nil
		c := tls.Client(raw, cfg)
		defer c.Close()
		c.SetDeadline(time.Now().Add(stuck))
		_, ok := sannet.InfoOf(c)
		assert.True(t, ok)
		sent := pattern(3 << 20)
		go func() {
			c.Write(sent)
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(sent, got))
		assert.NoError(t, <-echoed)
	})
}

// TestTLSCloseWakesWrite: closing a tls.Conn with a parked Write relies on Close waking it.
func TestTLSCloseWakesWrite(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		w := serve(t, p, true, func(http.ResponseWriter, *http.Request) {})
		s := &script{T: t, path: p, names: new(names)}
		client, server := s.pair()
		cfg := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
		cfg.ServerName, cfg.NextProtos = "example.com", nil
		tc, ts := tls.Client(client, cfg), tls.Server(server, w.TLS)
		wait := s.park(func(*script) { assert.NoError(t, ts.Handshake()) })
		require.NoError(t, tc.Handshake())
		wait()
		wait = s.park(func(*script) {
			_, err := fill(tc)
			assert.ErrorIs(t, err, net.ErrClosed)
		})
		tc.Close()
		wait()
	})
}

// TestPlainClients: clients that know nothing of SANs are served over TCP, on the port that the SAN listens on too.
func TestPlainClients(t *testing.T) {
	p := sanPath(t)
	w := serve(t, p, false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	t.Run("HTTP/1.0 by hand", func(t *testing.T) {
		c, err := net.Dial("tcp", w.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		all, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(all), "\r\n\r\nHTTP/1.0"), string(all))
	})
	t.Run("net/http", func(t *testing.T) {
		tr := new(http.Transport)
		defer tr.CloseIdleConnections()
		r, err := (&http.Client{Transport: tr, Timeout: stuck}).Get(w.URL)
		assert.Equal(t, "HTTP/1.1", body(t, r, err))
	})
	t.Run("silent", func(t *testing.T) {
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		for range 10 {
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			// It is accepted though it says nothing, and keeps nobody else waiting.
			sv, err := l.Accept()
			require.NoError(t, err)
			defer sv.Close()
			require.IsType(t, (*net.TCPConn)(nil), sv)
			info, ok := sannet.InfoOf(sv)
			assert.True(t, ok)
			assert.Equal(t, "tcp", info.Path.String())
			san, err := p.dial(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			defer san.Close()
			sv, err = l.Accept()
			require.NoError(t, err)
			defer sv.Close()
			require.IsType(t, (*sannet.Conn)(nil), sv)
		}
	})
}

// TestServerSpeaksFirst: a client of any kind reads a greeting before it says a word.
func TestServerSpeaksFirst(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer l.Close()
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if !assert.NoError(t, err) {
					return
				}
				fmt.Fprintf(c, "220 ready\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, "got %s", line)
				c.Close()
			}
		})
		for _, dial := range []func(context.Context, string, string) (net.Conn, error){p.dial, new(net.Dialer).DialContext} {
			c, err := dial(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			c.SetDeadline(time.Now().Add(stuck))
			br := bufio.NewReader(c)
			line, err := br.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "220 ready\r\n", line)
			fmt.Fprintf(c, "EHLO\n")
			line, err = br.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "got EHLO\n", line)
			_, err = br.ReadByte()
			assert.Equal(t, io.EOF, err)
			c.Close()
		}
	})
}
