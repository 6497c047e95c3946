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

// fastPuppet is a puppet at a Conn that is in use, on the fast path.
func fastPuppet(t *testing.T, cfg Config) *puppet {
	p := newPuppet(t, fakeAttr(), puppetHello(), cfg)
	c := p.conn
	p.w.ends[0].OnWake(c.wake)
	c.mu.Lock()
	c.started()
	require.True(t, c.core.fast)
	return p
}

// hear has a message arrive, and nobody but the wake function told.
func (p *puppet) hear(h header, payload ...byte) {
	h.length = uint32(len(payload))
	require.True(p.t, p.raw(encode(h, payload)))
}

// Credits that a Read polls on the fast path, before it goes to sleep, wake the Write that waits for them.
func TestReadPollsForAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fastPuppet(t, Config{Threshold: -1})
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

// A receive that cannot be posted again, on the fast path, is the end of the connection, which the next Read tells.
func TestFastReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fakeAttr()
		a.MaxInline = 0 // the last message completes, by and by
		p := newPuppet(t, a, puppetHello(), Config{})
		c := p.conn
		c.mu.Lock()
		c.started()
		require.True(t, c.core.fast)
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
		assert.False(t, c.core.fast)
		start := time.Now()
		_, err = c.Read(b)
		assert.ErrorIs(t, err, provider.StatusLink)
		assert.Zero(t, time.Since(start))
		c.Close()
	})
}

// Each thing that somebody has to look after keeps a core from the fast path.
func TestCanFast(t *testing.T) {
	for name, set := range map[string]func(c *core){
		"offer of the peer's": func(c *core) { c.in.active = true },
		"piece under way":     func(c *core) { c.in.busy = true },
		"offer of ours":       func(c *core) { c.out.active = true },
		"letter":              func(c *core) { c.want(letterPong) },
		"late message":        func(c *core) { c.late = new(provider.Send) },
		"fault":               func(c *core) { c.fault = provider.StatusLink },
		"sends change":        func(c *core) { c.send.want = 1 },
		"Write of the peer's": func(c *core) { c.peerBlocked = true },
		"shrinking":           func(c *core) { c.shrinking = true },
		"Buffer under way":    func(c *core) { c.buffer = bufferOut },
		"end to be told":      func(c *core) { c.writing = writeEnding },
		"end told":            func(c *core) { c.writing = writeEnded },
		"end of the peer's":   func(c *core) { c.reading = readEOF },
		"reading shut":        func(c *core) { c.reading = readShut },
		"closing":             func(c *core) { c.life = lifeClosing },
		"done":                func(c *core) { c.life = lifeDone },
		"paused":              func(c *core) { c.line.state = linePaused },
		"ended":               func(c *core) { c.line.state = lineEnded },
		"hand-over":           func(c *core) { c.susp = &suspension{role: passive} },
		"error":               func(c *core) { c.err = os.ErrClosed },
		"peer closed":         func(c *core) { c.peer = peerClosed },
	} {
		c := new(core)
		require.True(t, c.canFast())
		set(c)
		assert.False(t, c.canFast(), name)
	}
}
