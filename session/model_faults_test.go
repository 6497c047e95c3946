package session

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// The model of model_test.go over a wire that fails, with ends that abort, close and hang up at any moment. What must hold
// then: every byte that is read is the right one; an end of the stream is told only after all of it; a
// write that was taken back on a connection that lives on counts what the peer can read (or the bytes that follow
// would be wrong ones); nothing hangs and nothing stays registered.

// faultEnd is a modelEnd with the end of a connection, as Conn has it.
type faultEnd struct {
	*modelEnd
	ep       *fakeEnd
	epClosed bool
	closed   bool // by the application
	deafened bool
	patience int // rounds until a last message that does not leave is given up
}

func (e *faultEnd) finalize() {
	if !e.core.finished() || e.epClosed {
		return
	}
	if e.inFlight > 0 && e.line.state != lineEnded && e.patience > 0 {
		e.patience--
		return
	}
	e.closeEndpoint()
}

func (e *faultEnd) closeEndpoint() {
	if e.epClosed {
		return
	}
	e.epClosed = true
	e.lock()
	e.ep.Close()
	e.lineClosed()
	if e.core.err == nil && e.core.reading != readEOF && !e.closed {
		e.core.err = syscall.ECONNRESET
	}
}

// closeApp is Close, with a linger of 0 if drop. A Write or a Read that is under way ends, by and by.
func (e *faultEnd) closeApp(drop bool) {
	if e.closed {
		return
	}
	e.closed, e.fin = true, true
	if e.epClosed {
		return
	}
	e.lock()
	if drop {
		e.drop()
	} else {
		e.close()
	}
	e.finalize()
	if !e.epClosed {
		e.giveUp()
		e.stopPiece()
	}
}

// step does something at random.
func (e *faultEnd) step(w *fakeWire) {
	if e.closed || e.epClosed {
		// What was under way still comes to an end, and what has arrived can be read.
		e.rest()
	} else {
		e.modelEnd.step(w)
	}
	e.finalize()
}

// rest brings what is under way to an end.
func (e *faultEnd) rest() {
	if e.offered != nil {
		if e.closed && !e.epClosed {
			e.giveUp()
		}
		e.stepOffer()
	}
	if e.into != nil || !e.closed {
		e.stepRead(50000)
	}
	e.ep.deliver()
	e.poll()
}

func TestModelFaults(t *testing.T) {
	seeds := uint64(testSeeds(t, 200))
	for seed := range seeds {
		if !t.Run("", func(t *testing.T) { runModelFaults(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

// faultPlan decides which steps fail; nil: none does.
func faultPlan(r *rand.Rand) func(step string) provider.Status {
	steps := []string{"post-send", "post-recv", "post-rdma", "rdma", "expose", "register", "allocate", "deregister"}
	chance := map[string]int{}
	for range r.IntN(3) {
		chance[steps[r.IntN(len(steps))]] = 1 + r.IntN(200)
	}
	if len(chance) == 0 {
		return nil
	}
	hows := []provider.Status{provider.StatusLink, provider.StatusQueueFull, provider.StatusNoMemory, provider.StatusTooLong}
	return func(step string) provider.Status {
		if n := chance[step]; n > 0 && r.IntN(n) == 0 {
			switch step {
			case "expose", "register", "allocate":
				return provider.StatusLimit
			}
			return hows[r.IntN(len(hows))]
		}
		return provider.StatusOK
	}
}

func runModelFaults(t testing.TB, seed uint64) {
	r := fakeRand(seed + 5000)
	w := newFakeWire(modelAttrs(r.IntN(modelKinds)), modelAttrs(r.IntN(modelKinds)))
	two := newModelEnds(t, w, seed, Config{ReadBuffer: 20<<10 + r.IntN(200<<10)})
	var ends [2]*faultEnd
	for i := range ends {
		ends[i] = &faultEnd{modelEnd: two[i], ep: w.ends[i], patience: 20}
	}
	w.faults = faultPlan(r)
	sound := w.faults == nil // nothing but the ends themselves ends the connection

	check := func() {
		for i, e := range ends {
			o := ends[1-i]
			require.Empty(t, e.bad)
			require.NoError(t, sane(&e.core), "end %d", i)
			require.LessOrEqual(t, o.read, e.accepted+uint64(len(e.writing)), "end %d reads what was not written", 1-i)
			if o.eof && o.core.err == nil && !o.deafened && !o.closed && e.offered == nil {
				require.Equal(t, e.accepted, o.read, "end %d is told of the end of the stream", 1-i)
			}
			if !e.epClosed && !e.closed && e.core.err == nil && e.writeErr != nil {
				require.True(t, e.core.peer != peerThere, "end %d: %v", i, e.writeErr)
			}
		}
	}
	for range 200 + r.IntN(1500) {
		i := r.IntN(2)
		e := ends[i]
		switch r.IntN(1000) {
		case 0:
			e.closeApp(true)
		case 1:
			e.closeApp(false)
		case 2:
			if !e.closed && !e.epClosed && !isBroken(&e.core) {
				e.lock()
				e.closeRead()
				e.deafened = true
			}
		case 3:
			if !e.fin && e.writing == nil {
				e.fin = true
				e.lock()
				e.closeWrite()
			}
		case 4:
			if r.IntN(3) == 0 { // the link fails
				sound = false
				w.ends[0].disconnect()
				w.ends[1].disconnect()
			}
		case 5:
			if !e.epClosed {
				e.lock()
				e.ping()
			}
		}
		e.step(w)
		check()
	}

	// The applications finish what is under way, read to the end, and close.
	for round := 0; ; round++ {
		if round > 20000 {
			t.Fatalf("stuck, broken %v: %v%v", w.broken, describe(two), wireState(w))
		}
		over := true
		for i, e := range ends {
			if !e.closed && !e.epClosed {
				e.stepWrite(0)
				if e.writing == nil && !e.fin {
					e.fin = true
					e.lock()
					e.closeWrite()
				}
				e.stepBackground()
			}
			e.rest()
			e.finalize()
			if (e.eof || e.readErr != nil) && e.into == nil && (e.writing == nil || e.writeErr != nil || e.epClosed) && e.offered == nil {
				e.closeApp(false)
			}
			over = over && e.closed && e.epClosed && e.into == nil && e.offered == nil
			check()
			_ = i
		}
		if over {
			break
		}
	}
	w.faults = nil
	for i, e := range ends {
		if sound {
			require.LessOrEqual(t, ends[1-i].read, e.accepted, "counts are exact, whoever drops the connection")
		}
		require.False(t, e.in.busy)
		e.finish()
		require.Zero(t, w.ends[i].leaks(), "registrations of end %d", i)
	}
	requireRules(t, w)
}
