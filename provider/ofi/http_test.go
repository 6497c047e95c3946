//go:build ofi && cgo && linux

package ofi_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/provider/ofi"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// TestHTTP has net/http's client and server talk over the fabric, as two programs would.
func TestHTTP(t *testing.T) {
	p := ofi.Opened(t)
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}, HeadStart: 20 * time.Second})
	defer sw.Close()
	ln, err := (&sannet.ListenConfig{Switch: sw}).Listen(t.Context(), "tcp", net.JoinHostPort(ofi.TestAddr.Addr().String(), "0"))
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok {
			http.Error(w, "no TCP address", http.StatusInternalServerError)
			return
		}
		body, err := io.ReadAll(r.Body) // HTTP/1 reads before it writes
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Write(body)
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()

	var used []net.Conn
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&sannet.Dialer{Switch: sw}).DialContext(ctx, network, addr)
		if err == nil {
			used = append(used, c)
		}
		return c, err
	}}
	client := &http.Client{Transport: transport}
	for _, n := range []int{0, 100, 100 << 10, 1 << 20} {
		body := bytes.Repeat([]byte("body"), n/4)
		resp, err := client.Post("http://"+ln.Addr().String(), "text/plain", bytes.NewReader(body))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.True(t, bytes.Equal(body, got))
	}
	require.Len(t, used, 1, "one connection is kept alive")
	info, ok := sannet.InfoOf(used[0])
	require.True(t, ok)
	require.Equal(t, "ofi", info.Provider)
	transport.CloseIdleConnections()
	require.NoError(t, srv.Shutdown(t.Context()))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}
