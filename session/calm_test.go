package session

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// spin is a Spinner that lets things happen while a Read or a Write looks for completions.
type spin func() bool

func (f spin) Spin() bool { return f() }

// pollHook is an endpoint of which f is called before each Poll.
type pollHook struct {
	provider.Endpoint
	f func()
}

func (h *pollHook) Poll(c []provider.Completion) int {
	h.f()
	return h.Endpoint.Poll(c)
}

// calmPuppet is a puppet at a Conn that is in use, and calm.
func calmPuppet(t *testing.T, cfg Config) *puppet {
	p := newPuppet(t, fakeAttr(), puppetHello(), cfg)
	c := p.conn
	p.w.ends[0].OnWake(c.wake)
	c.mu.Lock()
	c.started()
	require.True(t, c.core.calm)
	return p
}

// hear has a message arrive, and nobody but the wake function told.
func (p *puppet) hear(h header, payload ...byte) {
	h.length = uint32(len(payload))
	require.True(p.t, p.raw(encode(h, payload)))
}

// What a Write of a flow polls for a Read that spins, and has not armed yet, is not lost to that Read.
func TestFlowPollsForASpinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPuppet(t, Config{})
		c := p.conn
		spins := 0
		c.spinner = spin(func() bool {
			if spins++; spins > 1 {
				return false
			}
			for !c.core.flow {
				_, err := c.Write([]byte{1})
				require.NoError(t, err)
			}
			require.True(t, c.core.calm)
			c.mu.Lock()
			p.hear(header{kind: kindData}, 7)
			c.mu.Unlock()
			for c.core.queue.len() == 0 {
				_, err := c.Write(make([]byte, 100))
				require.NoError(t, err)
				require.True(t, c.core.calm)
			}
			return false
		})
		start := time.Now()
		b := make([]byte, 10)
		n, err := c.Read(b)
		require.NoError(t, err)
		assert.Equal(t, []byte{7}, b[:n])
		assert.Zero(t, time.Since(start), "it is not woken by something else")
		c.SetLinger(0)
		c.Close()
	})
}

// Credits that a Read polls on a calm core, before it goes to sleep, wake the Write that waits for them.
func TestReadPollsForAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPuppet(t, Config{Threshold: -1})
		c := p.conn
		wrote := make(chan error)
		go func() {
			_, err := c.Write(make([]byte, 10*minBuffer))
			wrote <- err
		}()
		time.Sleep(time.Second) // until the peer has been told
		spins, polls := 0, 0
		c.mu.Lock()
		hook := &pollHook{c.ep, func() {
			if polls--; polls == 0 {
				p.hear(header{kind: kindCredit, credits: 20})
			}
		}}
		c.ep, c.core.ep = hook, hook
		c.mu.Unlock()
		c.spinner = spin(func() bool {
			if spins++; spins > 1 {
				return false
			}
			c.mu.Lock()
			p.hear(header{kind: kindCredit, credits: 1}) // too few; this uses the arming up
			polls = 2
			c.mu.Unlock()
			return true
		})
		go c.Read(make([]byte, 1))
		require.NoError(t, <-wrote)
		c.SetLinger(0)
		c.Close()
	})
}

// What a Write has gathered before it failed leaves, without another one.
func TestFailedWriteOfAFlowLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPuppet(t, Config{})
		c := p.conn
		for Held(c) == 0 || c.core.canData() {
			_, err := c.Write([]byte{1})
			require.NoError(t, err)
		}
		c.SetWriteDeadline(time.Now().Add(time.Microsecond))
		n, err := c.Write(make([]byte, 1000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotZero(t, n)
		require.NotZero(t, Held(c))
		time.Sleep(time.Second)
		c.mu.Lock()
		p.hear(header{kind: kindNop, flags: flagDry, credits: 4})
		c.unlockIdle()
		synctest.Wait()
		assert.Zero(t, Held(c))
		c.SetLinger(0)
		c.Close()
	})
}

// A receive that cannot be posted again, on a calm core, is the end of the connection, which the next Read tells.
func TestCalmReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fakeAttr()
		a.MaxInline = 0 // the last message completes, by and by
		p := newPuppet(t, a, puppetHello(), Config{})
		c := p.conn
		c.mu.Lock()
		c.started()
		require.True(t, c.core.calm)
		p.hear(header{kind: kindData}, 7)
		p.w.faults = func(step string) provider.Status {
			if step == "post-recv" {
				return provider.StatusLink
			}
			return provider.StatusOK
		}
		b := make([]byte, 10)
		n, err := c.Read(b)
		require.NoError(t, err)
		assert.Equal(t, []byte{7}, b[:n])
		assert.False(t, c.core.calm)
		start := time.Now()
		_, err = c.Read(b)
		assert.ErrorIs(t, err, provider.StatusLink)
		assert.Zero(t, time.Since(start))
		c.Close()
	})
}

// Each thing that somebody has to look after keeps a core from being calm.
func TestCanCalm(t *testing.T) {
	for name, set := range map[string]func(c *core){
		"offer of the peer's": func(c *core) { c.in.active = true },
		"offer of ours":       func(c *core) { c.out.active = true },
		"something to send":   func(c *core) { c.pongWanted = true },
		"late message":        func(c *core) { c.late = new(provider.Send) },
		"Write of the peer's": func(c *core) { c.peerStuck = true },
		"beside the stream":   func(c *core) { c.aside = true },
		"shrinking":           func(c *core) { c.shrinking = true },
		"Buffer under way":    func(c *core) { c.buffer = bufferOut },
		"end to be told":      func(c *core) { c.finWanted = true },
		"end told":            func(c *core) { c.finWanted, c.finSent = true, true },
		"end of the peer's":   func(c *core) { c.eof = true },
		"deaf":                func(c *core) { c.deaf = true },
		"closing":             func(c *core) { c.closing = true },
		"paused":              func(c *core) { c.paused = true },
		"muted":               func(c *core) { c.muted = true },
		"error":               func(c *core) { c.err = os.ErrClosed },
		"ended":               func(c *core) { c.ended = true },
		"done":                func(c *core) { c.done = true },
		"peer gone":           func(c *core) { c.peerGone = true },
		"reset":               func(c *core) { c.reset = true },
		"aborting":            func(c *core) { c.aborting = true },
		"nothing leaves":      func(c *core) { c.abortSent = true },
	} {
		c := new(core)
		require.True(t, c.canCalm())
		set(c)
		assert.False(t, c.canCalm(), name)
	}
}

// dries is how often the peer has been told that there is nothing left to read.
func (p *puppet) dries() (n int) {
	hs, _ := p.heard()
	for _, h := range hs {
		if h.flags&flagDry != 0 {
			n++
		}
	}
	return n
}

// A Read that looks for data, and finds credits all the time, has nothing left to read either.
func TestDryWhereAReadFindsCreditsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPuppet(t, Config{})
		c := p.conn
		spins, said := 0, 0
		c.spinner = spin(func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			said += p.dries()
			if spins++; spins == 5 {
				p.hear(header{kind: kindData}, 8)
			} else {
				p.hear(header{kind: kindCredit, credits: 1})
			}
			return true
		})
		c.mu.Lock()
		p.hear(header{kind: kindData, flags: flagWant}, 7)
		c.unlockIdle()
		b := make([]byte, 10)
		for i := range 2 {
			n, err := c.Read(b)
			require.NoError(t, err)
			assert.Equal(t, []byte{byte(7 + i)}, b[:n])
		}
		assert.Equal(t, 1, said)
		c.SetLinger(0)
		c.Close()
	})
}

// Where telling the peer that there is nothing left breaks the connection, the Read that was about to sleep says so.
func TestDryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPuppet(t, Config{})
		c := p.conn
		c.mu.Lock()
		p.hear(header{kind: kindData, flags: flagWant}, 7)
		p.w.faults = func(step string) provider.Status {
			if step == "post-send" {
				return provider.StatusLink
			}
			return provider.StatusOK
		}
		c.unlockIdle()
		b := make([]byte, 10)
		n, err := c.Read(b)
		require.NoError(t, err)
		assert.Equal(t, []byte{7}, b[:n])
		synctest.Wait() // nobody else looks after it
		start := time.Now()
		c.SetReadDeadline(start.Add(time.Hour))
		_, err = c.Read(b)
		assert.ErrorIs(t, err, provider.StatusLink)
		assert.Zero(t, time.Since(start))
		c.Close()
	})
}
