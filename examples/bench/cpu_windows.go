package main

import (
	"syscall"
	"time"
)

// cpuTime is the time, of user and system, that this process has used.
func cpuTime() time.Duration {
	p, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(p, &created, &ended, &kernel, &user); err != nil {
		return 0
	}
	// These are durations in units of 100 ns, for which Filetime has no method.
	ticks := func(f syscall.Filetime) time.Duration {
		return time.Duration(f.HighDateTime)<<32 | time.Duration(f.LowDateTime)
	}
	return 100 * (ticks(kernel) + ticks(user))
}
