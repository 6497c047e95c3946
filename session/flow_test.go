package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// A flow of small writes is gathered into few messages; credits alone do not make it leave, but a reader that has nothing left does.
func TestFlow(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	sent := c.stats.MessagesSent
	const n = 1000
	var got []byte
	read := func() {
		p := make([]byte, n)
		m, err := d.c[1].read(p)
		require.NoError(t, err)
		got = append(got, p[:m]...)
	}
	for pos := range n {
		require.Equal(t, 1, d.write(0, stream(0, pos, 1)))
		if pos%100 == 99 {
			d.settle()
			read()
		}
	}
	assert.True(t, c.flow)
	assert.Less(t, c.stats.MessagesSent-sent, uint64(n/10))
	d.settle()
	read()
	d.settle()
	require.NotEmpty(t, c.held)
	require.True(t, c.told)
	require.True(t, d.c[1].peerWant)
	d.c[1].dryUp()
	d.c[1].dryUp()
	d.settle()
	assert.Empty(t, c.held)
	assert.False(t, c.flow)
	assert.Equal(t, stream(0, 0, n), append(got, d.read(1, n)...))
	d.c[1].dryUp()
	assert.False(t, d.c[1].peerWant, "it is said once for each want")
	d.finish()
}

// Nobody says that there is nothing left while there is something, or without a credit to say it with.
func TestDryUp(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	r := d.c[1]
	sent := r.stats.MessagesSent
	r.dryUp()
	assert.Equal(t, sent, r.stats.MessagesSent, "nobody wants to know")
	for pos := range 20 {
		d.write(0, stream(0, pos, 1))
	}
	d.settle()
	require.True(t, r.peerWant)
	r.dryUp()
	assert.True(t, r.peerWant)
	got := make([]byte, 20)
	n, _ := r.read(got)
	got = got[:n]
	credits := r.win.credits
	r.win.credits = 0
	r.dryUp()
	r.win.credits = credits
	assert.True(t, r.peerWant)
	r.dryUp()
	assert.False(t, r.peerWant)
	d.settle()
	assert.Equal(t, stream(0, 0, 20), append(got, d.read(1, 100)...))
	d.finish()
}

// A large write does not wait behind gathered ones, and goes the way that it would go without them.
func TestFlowEndsWithALargeWrite(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	for pos := range 20 {
		d.write(0, stream(0, pos, 1))
	}
	require.True(t, c.flow)
	d.settle()
	got := make([]byte, 100)
	n, _ := d.c[1].read(got)
	got = got[:n]
	d.settle()
	require.NotEmpty(t, c.held)
	c.endFlow()
	assert.Empty(t, c.held)
	d.settle()
	assert.Equal(t, stream(0, 0, 20), append(got, d.read(1, 100)...))
	d.finish()
}

// A reader that has few credits itself, and pays with one of the last, wakes a writer that sleeps but for dry: it has to be paid
// back, or could not say that.
func TestDryWithoutCredits(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	w, r := d.c[0], d.c[1]
	for r.canData() {
		d.write(1, stream(1, int(r.stats.BytesCopiedOut), r.payload()))
	}
	d.settle() // what nobody reads
	n := 0
	for ; len(w.held) == 0; n++ {
		require.Equal(t, 1, d.write(0, stream(0, n, 1)))
	}
	require.True(t, w.told)
	// The writer is idle from here on, as a Conn is that nobody uses.
	end := d.w.ends[0]
	end.armed = provider.WakeSolicited
	awake := false
	end.wake = func() { awake = true }
	step := func() {
		for d.w.ends[1].deliver() || awake {
			if awake {
				awake = false
				w.poll()
				end.armed = provider.WakeSolicited
			}
		}
		for end.deliver() {
		}
		r.poll()
	}
	r.closeWrite() // a control message that crosses the last that the writer has sent
	step()
	var got []byte
	for range 5 {
		p := make([]byte, 1)
		m, err := r.read(p)
		require.NoError(t, err)
		got = append(got, p[:m]...)
		if m == 0 {
			r.dry = true
			r.dryUp()
		}
		step()
		r.dry = false
	}
	for range 5 {
		p := make([]byte, n)
		m, err := r.read(p)
		require.NoError(t, err)
		got = append(got, p[:m]...)
		r.dryUp()
		step()
	}
	assert.Equal(t, stream(0, 0, n), got)
	assert.Empty(t, w.held)
	end.wake = nil
	d.finish()
}

// Likewise where it has spent them on credits alone, as one that lends its buffers does.
func TestCreditsForDry(t *testing.T) {
	p := newPuppet(t, noGrow(), puppetHello(), Config{})
	p.heard()
	for range p.c.recv[0].count - reserve {
		p.say(header{kind: kindData}, []byte{1})
	}
	for len(p.c.held) == 0 {
		_, err := p.c.write([]byte{1})
		require.NoError(t, err)
	}
	require.True(t, p.c.told)
	p.heard()
	p.say(header{kind: kindCredit, credits: 2})
	assert.Empty(t, p.kinds())
	p.say(header{kind: kindCredit, credits: 2})
	assert.Equal(t, []kind{kindCredit}, p.kinds())
	p.finish()
}
