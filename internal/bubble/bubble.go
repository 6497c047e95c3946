// Package bubble tells whether code runs in a bubble of testing/synctest. What is made in a
// bubble must not be used outside: a channel, or a timer, that crosses the border is a fatal
// error of the whole program.
package bubble

import (
	"bytes"
	"runtime"
	"strconv"
	"time"
)

// ID returns the number of the bubble that the caller runs in, 0 where it is in none. Outside it
// takes as long as to look at the clock.
func ID() uint64 {
	// In a bubble, and nearly nowhere else, the time has no reading of the monotonic clock, which
	// Round would drop.
	if now := time.Now(); now != now.Round(0) {
		return 0
	}
	var line [128]byte
	return parse(line[:runtime.Stack(line[:], false)])
}

// parse finds the bubble in the first line of a goroutine's stack: "goroutine 7 [running,
// synctest bubble 3]:".
func parse(stack []byte) uint64 {
	line, _, _ := bytes.Cut(stack, []byte("\n"))
	_, rest, _ := bytes.Cut(line, []byte("synctest bubble "))
	end := 0
	for end < len(rest) && '0' <= rest[end] && rest[end] <= '9' {
		end++
	}
	id, _ := strconv.ParseUint(string(rest[:end]), 10, 64)
	return id
}
