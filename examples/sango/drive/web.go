package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// serveHTTP serves a small page, and metrics for Prometheus.
func serveHTTP(addr string) error {
	page := strings.Repeat("0123456789", 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for i := range 1000 {
			fmt.Fprintf(w, "drive_figure{number=\"%d\"} %d\n", i, i)
		}
	})
	return http.ListenAndServe(addr, mux)
}

// httpShort makes a connection for each request.
func httpShort(addr string) error {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return rate("requests, a connection each", 4, func() error {
		r, err := c.Get("http://" + addr + "/")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != 100 {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		return nil
	})
}
