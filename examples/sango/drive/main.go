// Drive has the small servers and clients with which main.go runs other people's programs.
// Nothing in it knows of the SAN.
//
//	drive server-name address
//	drive client-name address
//
// A client prints a line for each figure: name, value, unit, and whether more is better.
package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// parts are the servers and clients. A server runs until it is killed.
var parts = map[string]func(addr string) error{
	"http-server":  serveHTTP,
	"http-short":   httpShort,
	"redis-server": serveRedis,
	"redis":        redisClient,
	"grpc-server":  serveGRPC,
	"grpc":         grpcClient,
	"nats":         natsClient,
	"prometheus":   prometheusClient,
	"dns":          dnsClient,
}

func main() {
	if len(os.Args) != 3 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: drive part address")
		os.Exit(2)
	}
	if err := parts[os.Args[1]](os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "drive %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// span is how long a figure is measured.
const span = 700 * time.Millisecond

// figure prints one.
func figure(name string, value float64, unit, better string) {
	fmt.Printf("%s|%g|%s|%s\n", name, value, unit, better)
}

// latency calls f for the span, one call after the other, and prints the median.
func latency(name string, f func() error) error {
	for range 20 { // warm
		if err := f(); err != nil {
			return err
		}
	}
	var took []time.Duration
	for end := time.Now().Add(span); time.Now().Before(end); {
		start := time.Now()
		if err := f(); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	figure(name, float64(took[len(took)/2].Nanoseconds())/1e3, "µs", "lower")
	return nil
}

// rate calls f in several goroutines for the span, and prints how often a second.
func rate(name string, workers int, f func() error) error {
	type result struct {
		n   int
		err error
	}
	results := make(chan result)
	start := time.Now()
	for range workers {
		go func() {
			r := result{}
			for time.Since(start) < span && r.err == nil {
				r.err = f()
				r.n++
			}
			results <- r
		}()
	}
	n := 0
	var err error
	for range workers {
		r := <-results
		n += r.n
		if r.err != nil {
			err = r.err
		}
	}
	figure(name, float64(n)/time.Since(start).Seconds(), "/s", "higher")
	return err
}
