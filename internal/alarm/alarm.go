// Package alarm is a timer that is made when it is first needed.
package alarm

import "time"

// Alarm calls a function after a while. The zero Alarm is not set, and costs a word. Its methods need the lock of its owner;
// the function runs in a goroutine of its own, and may still run after Stop or be late for an earlier Set, as that of a
// time.AfterFunc: it looks for itself whether it is wanted.
type Alarm struct{ timer *time.Timer }

// Set has f called after d. An Alarm that is set already is set anew. f must be the same in every call.
func (a *Alarm) Set(d time.Duration, f func()) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, f)
	} else {
		a.timer.Reset(d)
	}
}

// Again is Set with the function of the calls before, which a caller would have to make anew. It
// reports false where there was none, and does nothing then.
func (a *Alarm) Again(d time.Duration) bool {
	if a.timer == nil {
		return false
	}
	a.timer.Reset(d)
	return true
}

// Stop ends the wait. It does nothing where none is under way.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
