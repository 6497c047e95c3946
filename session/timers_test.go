package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closing returns a connection that has closed, of which the peer has not taken everything yet.
func closing(t *testing.T) (*Conn, *puppet) {
	c, p, err := negotiateWith(t, fakeAttr(), Listener, nil, goodOffer, goodReady)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return c, p
}

// lastAbort is the code of the abort that the peer hears last, 0 for none.
func (p *puppet) lastAbort() uint64 {
	hs, _ := p.heard()
	if n := len(hs); n > 0 && hs[n-1].kind == kindAbort {
		return hs[n-1].arg
	}
	return 0
}

// What was not delivered in time is lost, which the peer sees as a reset.
func TestLingerResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := closing(t)
		p.got = nil
		time.Sleep(closeTimeout - time.Nanosecond)
		synctest.Wait()
		assert.False(t, Over(c))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		assert.True(t, Over(c))
		assert.EqualValues(t, abortReset, p.lastAbort())
		requireRules(t, p.w)
	})
}

// The time for the last message to leave counts although the longer one for the peer to take everything is running.
func TestLingerIsBroughtForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := closing(t)
		start := time.Now()
		c.mu.Lock()
		c.core.life = lifeDone
		c.core.inFlight++ // a message that does not leave
		c.finalize()
		time.Sleep(sendTimeout / 2)
		c.finalize() // does not begin anew
		c.mu.Unlock()
		time.Sleep(sendTimeout / 2)
		synctest.Wait()
		assert.True(t, Over(c))
		assert.Equal(t, sendTimeout, time.Since(start))
	})
}
