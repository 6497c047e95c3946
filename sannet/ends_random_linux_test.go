package sannet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndsRandom: both ends do at random what ends do, until the actor ends at random. It is not
// known who is faster, so that what is checked is what TCP promises however that is.
// SANNET_TEST_SEEDS tells how many seeds to run.
func TestEndsRandom(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("SANNET_TEST_SEEDS"))
	if err != nil {
		seeds = 30
	}
	for _, p := range endPaths {
		t.Run(p.name, func(t *testing.T) {
			for seed := range seeds {
				c := randomCase(seed)
				way := closes
				if p.process {
					way = allWays[seed%len(allWays)]
				}
				role := roles[seed/len(allWays)%len(roles)]
				t.Run(c.name, func(t *testing.T) { c.run(t, p, way, role) })
			}
		})
	}
}

const randomName = "seed "

// randomCase is the case of a seed.
func randomCase(seed int) endCase {
	return endCase{
		name: randomName + strconv.Itoa(seed),
		actor: func(a *actor) {
			p := newPlayer(a.conn, seed, 1)
			err := p.play(10)
			if a.way == closes || a.way == leaves || err != nil {
				a.must(err)
			}
			a.tell(p.wrote)
			a.tell(p.read)
			a.tell(p.writes)
			a.tell(int(p.done))
			a.end()
		},
		witness: func(w *witness) {
			p := newPlayer(w.conn, seed, 2)
			err := p.play(10)
			if err != nil {
				var oe *net.OpError
				require.ErrorAs(w, err, &oe)
				w.isOne(oe.Op, err, syscall.ECONNRESET, syscall.EPIPE)
			}
			w.SetReadDeadline(time.Time{})
			w.judge(p)
		},
	}
}

// randomCaseOf is the case of that name, if it is random.
func randomCaseOf(name string) (endCase, bool) {
	rest, ok := strings.CutPrefix(name, randomName)
	seed, err := strconv.Atoi(rest)
	return randomCase(seed), ok && err == nil
}

// deed is what a player has done, or seen.
type deed uint

const (
	hasClosedWrite deed = 1 << iota
	hasLinger0
	sawEnd   // of what the other one writes
	sawReset // a call has said ECONNRESET, so that no other will
)

// player is one end of a random case.
type player struct {
	conn
	*rand.Rand
	wrote, read, writes int
	cut                 bool // a Write has failed: a part of it may have been there to be read
	done                deed
}

func newPlayer(c conn, seed, who int) *player {
	return &player{conn: c, Rand: rand.New(rand.NewPCG(uint64(seed), uint64(who)))}
}

// play makes so many steps, fewer where there is an error.
func (p *player) play(steps int) error {
	for range steps {
		if err := p.step(); err != nil {
			if errors.Is(err, syscall.ECONNRESET) {
				p.done |= sawReset
			}
			return err
		}
		if p.IntN(4) == 0 {
			// The other one is to be faster now and then.
			time.Sleep(time.Duration(p.IntN(300)) * time.Microsecond)
		}
	}
	return nil
}

// step makes one step. The total that is written is less than what a connection takes for a peer
// that does not read.
func (p *player) step() error {
	switch n := p.IntN(20); {
	case n < 8 && p.done&hasClosedWrite == 0:
		size := 1 + p.IntN(3000)
		if n == 0 {
			size = 33<<10 + p.IntN(50<<10)
		}
		m, err := p.Write(pattern(p.wrote + size)[p.wrote:])
		p.wrote += m
		p.writes++
		p.cut = err != nil
		return err
	case n < 17 && p.done&sawEnd == 0:
		size := 1 + p.IntN(4000)
		if n == 16 {
			size = 100 << 10
		}
		return p.readSome(size)
	case n == 17 && p.done&hasClosedWrite == 0:
		err := p.CloseWrite()
		if errors.Is(err, syscall.ENOTCONN) { // reset, and others are told
			return nil
		}
		p.done |= hasClosedWrite
		return err
	case n == 18 && p.IntN(3) == 0:
		p.done |= hasLinger0
		return p.SetLinger(0)
	}
	return nil
}

// readSome reads what is there, or comes soon.
func (p *player) readSome(size int) error {
	p.SetReadDeadline(time.Now().Add(time.Duration(p.IntN(2000)) * time.Microsecond))
	b := make([]byte, size)
	n, err := p.Read(b)
	if !bytes.Equal(b[:n], pattern(p.read + n)[p.read:]) {
		return fmt.Errorf("other bytes at %d", p.read)
	}
	p.read += n
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err == io.EOF:
		p.done |= sawEnd
		return nil
	}
	return err
}

// judge reads to the end, and checks everything.
func (w *witness) judge(p *player) {
	got, err := w.readsFrom(p.read, 10_000)
	actor := player{wrote: w.told(), read: w.told(), writes: w.told(), done: deed(w.told())}
	w.gone()
	w.Logf("actor: wrote %d in %d, read %d, %b", actor.wrote, actor.writes, actor.read, actor.done)
	w.Logf("witness: wrote %d, read %d, %b, %v", p.wrote, got, p.done, err)
	if err != io.EOF {
		w.is("read", syscall.ECONNRESET, err)
		assert.Zero(w, p.done&(sawReset|sawEnd), "told of the reset before, or of the end")
	}
	assert.LessOrEqual(w, got, actor.wrote, "read more than was accepted")
	assert.LessOrEqual(w, actor.read, p.wrote, "the actor has read more than was accepted")
	if actor.done&sawEnd != 0 {
		assert.Equal(w, p.wrote, actor.read, "the actor has read an end, and not everything before")
	}
	if err == io.EOF && p.done&sawReset == 0 {
		assert.Equal(w, actor.wrote, got, "an end, and not everything before")
	}
	clean := actor.read == p.wrote && !p.cut && actor.done&hasLinger0 == 0
	if clean {
		assert.Equal(w, io.EOF, err, "reset, and the actor has read everything")
		assert.Zero(w, p.done&sawReset, "reset, and the actor has read everything")
	}
	if clean || actor.done&hasLinger0 == 0 && actor.writes <= 10 && actor.wrote < 40<<10 {
		assert.Equal(w, actor.wrote, got, "not everything that was accepted")
	}
	w.SetWriteDeadline(future())
	if p.done&hasClosedWrite == 0 {
		w.writesUntil(syscall.EPIPE)
	} else {
		w.Write(zeros(1)) // may be told of a reset, also after an end, if much was on its way
	}
	w.writes(1, syscall.EPIPE)
	w.reads(1, 0, io.EOF)
	w.is("close", nil, w.conn.Close())
}
