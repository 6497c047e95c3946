package providertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// rig is what one rule works with: two providers, the connections between them, and a record of what went wrong.
// Its methods may be called from any goroutine of the rule.
type rig struct {
	*Config
	dialer, listener provider.Provider

	ctx    context.Context // ends with the rule
	cancel context.CancelFunc
	loose  sync.WaitGroup // the rule's own goroutines
	failed chan struct{}  // closed when the rule has failed for good
	ids    atomic.Uint64  // of operations
	seeds  atomic.Uint64

	mu       sync.Mutex // a leaf
	outcome  outcome
	seen     map[string]int // violations by kind
	ends     []*end
	memory   []*mem
	cleanups []func() // in reverse, after the ends and before the providers
	lis      provider.Listener
	closed   bool // the providers are
}

// outcome is how a rule ended.
type outcome struct {
	violations []string
	skipped    string
}

// maxAlike bounds how often a rule reports the same kind of violation: many show a thousand times.
const maxAlike = 3

// try runs one rule. It returns in time even if the provider hangs, and then leaves the rule's goroutines behind.
func (c *Config) try(r *rule) outcome {
	x := &rig{Config: c, failed: make(chan struct{}), seen: make(map[string]int)}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	defer x.cancel()
	x.ids.Store(rand.Uint64())
	x.seeds.Store(rand.Uint64())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer x.finish()
		defer x.rescue()
		x.open()
		r.prove(x)
	}()
	limit := time.NewTimer(c.Limit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		all := make([]byte, 64<<10)
		x.errorf("did not end within %v\n%s", c.Limit, all[:runtime.Stack(all, true)])
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outcome
}

func (x *rig) open() {
	var err error
	if x.dialer, x.listener, err = x.Open(); err != nil {
		x.fatalf("Open: %v", err)
	}
}

// finish ends everything that the rule has begun, and looks at it for a last time.
func (x *rig) finish() {
	defer x.rescue()
	x.cancel()
	x.within("the rule's goroutines", x.loose.Wait)
	for _, e := range x.allEnds() {
		e.close()
	}
	if x.lis != nil {
		x.within("Listener.Close", func() { x.lis.Close() })
	}
	for len(x.cleanups) > 0 {
		last := len(x.cleanups) - 1
		do := x.cleanups[last]
		x.cleanups = x.cleanups[:last]
		x.within("clean-up", do)
	}
	for _, e := range x.allEnds() {
		e.verdict()
	}
	x.closeProviders()
	for _, m := range x.memory {
		m.check("in the end")
	}
}

// closeProviders closes both providers, unless that was done.
func (x *rig) closeProviders() {
	if x.closed || x.dialer == nil {
		return
	}
	x.closed = true
	x.within("Provider.Close", func() {
		if err := x.dialer.Close(); err != nil {
			x.errorf("Provider.Close: %v", err)
		}
		if x.listener != x.dialer {
			if err := x.listener.Close(); err != nil {
				x.errorf("Provider.Close: %v", err)
			}
		}
	})
}

func (x *rig) allEnds() []*end {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]*end(nil), x.ends...)
}

// cleanup has do called when the ends are closed.
func (x *rig) cleanup(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cleanups = append(x.cleanups, do)
}

// errorf records a violation, with the line of the rule that led to it.
func (x *rig) errorf(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if w := where(); w != "" {
		what = w + ": " + what
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen[format]++; x.seen[format] <= maxAlike {
		x.outcome.violations = append(x.outcome.violations, what)
	}
}

// fatalf records a violation and ends the goroutine of the rule that calls it, and with it the rule.
func (x *rig) fatalf(format string, args ...any) {
	x.errorf(format, args...)
	x.giveUp()
}

func (x *rig) giveUp() {
	x.fail()
	runtime.Goexit()
}

// fail makes all goroutines of the rule end.
func (x *rig) fail() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over() {
		close(x.failed)
	}
}

// skip ends a rule that has nothing to say about this provider.
func (x *rig) skip(why string) {
	x.mu.Lock()
	x.outcome.skipped = why
	x.mu.Unlock()
	runtime.Goexit()
}

// over tells the goroutines of a rule to end, as the rule has failed.
func (x *rig) over() bool {
	select {
	case <-x.failed:
		return true
	default:
		return false
	}
}

// where is the innermost line of a rule that is being executed.
func where() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if base := filepath.Base(f.File); strings.HasPrefix(base, "rule_") {
			return fmt.Sprintf("%s:%d", base, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// rescue turns a panic, of the provider mostly, into a violation.
func (x *rig) rescue() {
	if p := recover(); p != nil {
		x.errorf("panic: %v\n%s", p, bytes.TrimSpace(debug.Stack()))
		x.fail()
	}
}

// spawn runs f in a goroutine, and returns what waits for its end. If f failed, so does the waiter.
func (x *rig) spawn(f func()) (join func()) {
	done := make(chan struct{})
	x.loose.Go(func() {
		defer close(done)
		defer x.rescue()
		f()
	})
	return func() {
		<-done // f itself waits for nothing without a bound
		if x.over() {
			runtime.Goexit()
		}
	}
}

// within runs f, which calls the provider and should return soon, and reports whether it did.
func (x *rig) within(what string, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer x.rescue()
		f()
	}()
	limit := time.NewTimer(x.Wait)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		x.errorf("%s did not return within %v", what, x.Wait)
		return false
	}
}

// bounded is within for a rule, which ends if f does not return or has failed.
func (x *rig) bounded(what string, f func()) {
	if !x.within(what, f) {
		x.giveUp()
	}
	if x.over() {
		runtime.Goexit()
	}
}

// await polls the ends until cond holds. Between polls it arms them, polls once more, and sleeps. Ends that it is not
// really waiting for belong to the list too where a fabric may need them to be polled to make progress.
// The sleep is short even if nobody is woken: whether wake-ups are lost is the business of rules of its own.
func (x *rig) await(what string, cond func() bool, ends ...*end) {
	if !x.awaits(cond, ends...) {
		x.fatalf("waited %v for %s", x.Wait, what)
	}
}

// awaits is await that reports whether the condition came true in time.
func (x *rig) awaits(cond func() bool, ends ...*end) bool {
	limit := time.Now().Add(x.Wait)
	nap := 100 * time.Microsecond
	timer := time.NewTimer(nap)
	defer timer.Stop()
	var token chan struct{}
	if len(ends) > 0 {
		token = ends[0].token
	}
	for {
		for _, e := range ends {
			e.poll()
		}
		if cond() {
			return true
		}
		if x.over() {
			runtime.Goexit()
		}
		if time.Now().After(limit) {
			return false
		}
		idle := true
		for _, e := range ends {
			if e.ep.Arm(provider.WakeAny) {
				idle = e.poll() == 0 && idle
			}
		}
		if !idle {
			continue
		}
		timer.Reset(nap)
		select {
		case <-token:
		case <-timer.C:
			nap = min(2*nap, 10*time.Millisecond)
		}
	}
}

// quiet watches for a while that ok stays true, polling the ends meanwhile.
func (x *rig) quiet(what string, ok func() bool, ends ...*end) {
	for limit := time.Now().Add(x.Quiet); ; {
		for _, e := range ends {
			e.poll()
		}
		if !ok() {
			x.fatalf("%s", what)
		}
		if time.Now().After(limit) {
			return
		}
		time.Sleep(x.Quiet / 10)
	}
}

// pause gives what is not supposed to happen the time to happen, for the ledgers to see.
func (x *rig) pause(ends ...*end) { x.quiet("", func() bool { return true }, ends...) }
