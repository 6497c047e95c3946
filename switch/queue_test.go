package sanswitch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func numbered(i int) Result {
	return Result{Conn: new(noted), Route: Route{Provider: string(rune('0' + i))}}
}

// Connections come out in the order of their requests, past those that fail, or stall.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		q := newQueue(10, 10)
		var slots []*slot
		for range 5 {
			s := new(slot)
			q.open(s)
			slots = append(slots, s)
		}
		next := func() string {
			s, wait := q.next()
			if s == nil {
				return wait.String()
			}
			return s.result.Route.Provider
		}
		assert.Equal(t, "0s", next(), "nothing to be held back")
		q.settle(slots[3], numbered(3), nil)
		assert.Equal(t, grace.String(), next())
		q.settle(slots[0], Result{}, broken)
		q.settle(slots[1], numbered(1), nil)
		time.Sleep(time.Millisecond)
		assert.Equal(t, "1", next())
		assert.Equal(t, (grace - time.Millisecond).String(), next())
		late := new(slot)
		q.open(late)
		q.settle(late, numbered(5), nil)
		time.Sleep(grace - time.Millisecond)
		assert.Equal(t, "3", next(), "past the one that stalls")
		assert.Equal(t, "5", next())
		assert.Equal(t, "0s", next())
		q.settle(slots[2], numbered(2), nil)
		assert.Equal(t, "2", next())
		q.settle(slots[4], Result{}, broken)
		assert.Empty(t, q.slots)
		assert.Zero(t, q.halfOpen)
	})
}

func TestQueueBounds(t *testing.T) {
	q := newQueue(5, 2)
	open := func() *slot {
		s := new(slot)
		q.open(s)
		return s
	}
	why := func() rejection {
		why, ok := q.open(new(slot))
		assert.False(t, ok)
		return why
	}
	a, b := open(), open()
	assert.Equal(t, rejectBusy, why())
	q.settle(a, numbered(0), nil)
	q.settle(b, numbered(1), nil)
	c, d := open(), open()
	assert.Equal(t, rejectBusy, why())
	q.settle(c, Result{}, errors.New("broken"))
	q.settle(d, numbered(2), nil)
	e, f := open(), open()
	assert.Equal(t, rejectFull, why())
	taken, _ := q.next()
	assert.Equal(t, a, taken)
	q.settle(e, numbered(3), nil)
	g := open()
	assert.Equal(t, rejectFull, why())

	q.close()
	for _, s := range []*slot{b, d, e} {
		assert.True(t, s.result.Conn.(*noted).closed)
	}
	assert.False(t, a.result.Conn.(*noted).closed, "it was accepted")
	r := numbered(4)
	q.settle(f, r, nil)
	assert.True(t, r.Conn.(*noted).closed)
	q.settle(g, Result{}, errors.New("broken"))
	assert.Equal(t, rejectFinal, why())
	assert.Zero(t, q.halfOpen)
}
