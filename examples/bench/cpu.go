package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// usage is what a process uses. What is not known on this system is -1, and 0 for CPU.
type usage struct {
	CPU         time.Duration // since the start of the process
	RSS         int64         // bytes
	Descriptors int64
	Goroutines  int64
}

func (u usage) add(v usage) usage {
	sum := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a + b
	}
	return usage{u.CPU + v.CPU, sum(u.RSS, v.RSS), sum(u.Descriptors, v.Descriptors), sum(u.Goroutines, v.Goroutines)}
}

// ownUsage returns what this process uses.
func ownUsage(a ask) usage {
	if a != askAll {
		return usage{CPU: cpuTime()}
	}
	debug.FreeOSMemory() // what is garbage is not in use
	return usage{cpuTime(), residentMemory(), descriptors(), int64(runtime.NumGoroutine())}
}

// residentMemory sums up what is mapped now, where the system can, as the counter in statm lags behind.
func residentMemory() int64 {
	if b, err := os.ReadFile("/proc/self/smaps_rollup"); err == nil {
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			f := strings.Fields(s.Text())
			if len(f) == 3 && f[0] == "Rss:" {
				if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					return kb << 10
				}
			}
		}
	}
	b, err := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(b)); err == nil && len(f) > 1 {
		if pages, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			return pages * int64(os.Getpagesize())
		}
	}
	return -1
}

func descriptors() int64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return -1
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return int64(len(names))
}

// cpuModel is the name of the processor, if it is known.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
