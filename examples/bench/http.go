package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// https are requests over connections that are kept alive.
func https() (ws []workload) {
	for _, size := range []int{100, 1 << 20} {
		for _, clients := range []int{1, 64} {
			ws = append(ws, workload{
				name:  fmt.Sprintf("http/%s/c%d", sizeName(size), clients),
				about: fmt.Sprintf("net/http requests per second, with bodies of the size, %d at a time", clients),
				size:  size,
				metrics: []metric{
					{"rate", opsPerSecond, true},
					{"cpu", cpuPerOp, false},
				},
				run: func(t *trial) ([]float64, error) { return requests(t, size, clients) },
			})
		}
	}
	return ws
}

func requests(t *trial, size, clients int) ([]float64, error) {
	tr := &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return t.connect(jobHTTP, size) },
		MaxConnsPerHost:     clients,
		MaxIdleConnsPerHost: clients,
	}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	url := "http://bench/" + strconv.Itoa(size)
	o, err := t.measure(func(n int) error {
		return spread(clients, n, func(int) error {
			r, err := client.Get(url)
			if err != nil {
				return err
			}
			got, err := io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if err == nil && (r.StatusCode != http.StatusOK || got != int64(size)) {
				err = fmt.Errorf("got %s and %d bytes instead of %d", r.Status, got, size)
			}
			return err
		})
	})
	return []float64{o.opsPerSecond(), o.cpuPerOp()}, err
}

// content returns what bodies are made of. Most processes do not need it.
var content = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 1<<16) })

// serveBody answers /100 with 100 bytes.
func serveBody(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil || size < 0 || size > len(content()) {
		http.Error(w, "the path must be the size of a body", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	w.Write(content()[:size])
}
