package sanhttp_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sansock/sanhttp"
	"sansock/sannet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever http.DefaultTransport sets is set here too, also by a later version of Go.
func TestTransportIsTheDefault(t *testing.T) {
	want := reflect.ValueOf(http.DefaultTransport.(*http.Transport)).Elem()
	for _, tr := range []http.RoundTripper{sanhttp.Transport, sanhttp.NewTransport(nil), sanhttp.NewTransport(&sannet.Dialer{})} {
		got := reflect.ValueOf(tr.(*http.Transport)).Elem()
		for i := range want.NumField() {
			f := want.Type().Field(i)
			w, g := want.Field(i), got.Field(i)
			switch {
			case !f.IsExported() || f.Name == "DialContext":
			case f.Name == "TLSClientConfig" || f.Name == "TLSNextProto": // set at first use
			case f.Type.Kind() == reflect.Func:
				assert.Equal(t, w.Pointer(), g.Pointer(), f.Name)
			case f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Pointer:
				assert.Equal(t, w.IsNil(), g.IsNil(), f.Name)
			default:
				assert.Equal(t, w.Interface(), g.Interface(), f.Name)
			}
		}
	}
	assert.Equal(t, sanhttp.Transport, sanhttp.Client.Transport)
	assert.Zero(t, sanhttp.Client.Timeout)
}

// hello answers requests with the protocol that they came by.
var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Proto, r.URL.Path) })

// get sends a request, and returns the answer, the path of the connection, and the events of the
// dial.
func get(t *testing.T, client *http.Client, url string) (text, path string, events []string) {
	t.Helper()
	var mu sync.Mutex
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			info, _ := sannet.InfoOf(i.Conn)
			path = info.String()
		},
		ConnectStart: func(network, addr string) { note("start %s %s", network, addr) },
		ConnectDone:  func(network, addr string, err error) { note("done %s %s %v", network, addr, err) },
	})
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(t, err)
	r, err := client.Do(req)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	return string(b), path, events
}

func TestClient(t *testing.T) {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: hello}
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	url := "http://" + l.Addr().String()

	_, _, want := get(t, http.DefaultClient, url+"/tcp")
	text, path, events := get(t, sanhttp.Client, url+"/san")
	assert.Equal(t, "HTTP/1.1 /san", text)
	assert.Equal(t, "san via emu", path)
	assert.Equal(t, want, events, "tracers see what they see of net")
	_, path, events = get(t, sanhttp.Client, url+"/again")
	assert.Equal(t, "san via emu", path)
	assert.Empty(t, events, "the connection was kept")

	http.DefaultClient.CloseIdleConnections()
	sanhttp.Client.CloseIdleConnections()
	require.NoError(t, srv.Close())
	assert.Equal(t, http.ErrServerClosed, <-served)
}

// With TLS it is HTTP/2, as with http.DefaultTransport, and unlike with a Transport that has but
// a DialContext.
func TestTransportHTTP2(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: hello, TLSConfig: &tls.Config{Certificates: borrowed.TLS.Certificates}}
	served := make(chan error)
	go func() { served <- srv.ServeTLS(l, "", "") }()

	tr := sanhttp.NewTransport(&sannet.Dialer{Timeout: time.Minute})
	tr.TLSClientConfig = borrowed.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	text, path, _ := get(t, &http.Client{Transport: tr}, "https://"+l.Addr().String()+"/tls")
	assert.Equal(t, "HTTP/2.0 /tls", text)
	assert.Equal(t, "san via emu", path)

	tr.CloseIdleConnections()
	require.NoError(t, srv.Close())
	assert.Equal(t, http.ErrServerClosed, <-served)
}

// A proxy is dialed over the SAN, and named by the environment as for http.DefaultTransport.
func TestTransportProxy(t *testing.T) {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.URL) })}
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	tr := sanhttp.NewTransport(nil)
	req, err := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
	require.NoError(t, err)
	tr.Proxy = http.ProxyURL(req.URL)
	text, path, _ := get(t, &http.Client{Transport: tr}, "http://far.test/x")
	assert.Equal(t, "for http://far.test/x", text)
	assert.Equal(t, "san via emu", path)
	tr.CloseIdleConnections()
	require.NoError(t, srv.Close())
	<-served
}

// The errors of listening and of certificates are those of net/http.
func TestListenAndServeErrors(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer used.Close()
	none := filepath.Join(t.TempDir(), "none")
	for _, addr := range []string{used.Addr().String(), none, "127.0.0.1:0"} {
		if addr != "127.0.0.1:0" {
			want, got := http.ListenAndServe(addr, nil), sanhttp.ListenAndServe(addr, nil)
			require.Error(t, want)
			assert.EqualError(t, got, want.Error())
		}
		want := http.ListenAndServeTLS(addr, none, none, nil)
		require.Error(t, want)
		assert.EqualError(t, sanhttp.ListenAndServeTLS(addr, none, none, nil), want.Error())
	}
	assert.ErrorIs(t, sanhttp.ListenAndServeTLS("127.0.0.1:0", none, none, nil), os.ErrNotExist)
}

// It serves SAN and TCP clients alike.
func TestListenAndServe(t *testing.T) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := probe.Addr().String()
	require.NoError(t, probe.Close())
	servers := make(chan *http.Server, 4)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		servers <- r.Context().Value(http.ServerContextKey).(*http.Server)
		hello(w, r)
	})
	served := make(chan error)
	go func() { served <- sanhttp.ListenAndServe(addr, handler) }()
	require.Eventually(t, func() bool { // over TCP, which does not ask for a SAN listener half made
		r, err := http.Get("http://" + addr)
		if err == nil {
			<-servers
			r.Body.Close()
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	for _, client := range []*http.Client{http.DefaultClient, sanhttp.Client} {
		text, _, _ := get(t, client, "http://"+addr+"/served")
		assert.Equal(t, "HTTP/1.1 /served", text)
		client.CloseIdleConnections()
	}
	require.NoError(t, (<-servers).Close())
	assert.Equal(t, http.ErrServerClosed, <-served)
}
