package sanswitch

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
)

var (
	dst1 = netip.MustParseAddrPort("10.0.0.1:80")
	dst2 = netip.MustParseAddrPort("10.0.0.1:81")
)

// avoided returns why dst is to be avoided, nil if it is not.
func avoided(n *negatives, dst netip.AddrPort) error {
	if neg, ok := n.get(dst); ok {
		return neg.err
	}
	return nil
}

func TestNegativesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		n := newNegatives(30 * time.Second)
		assert.NoError(t, avoided(n, dst1))
		n.add(dst1, broken, time.Now())
		assert.Equal(t, broken, avoided(n, dst1))
		assert.NoError(t, avoided(n, dst2), "another port")
		time.Sleep(firstPause - 1)
		assert.Equal(t, broken, avoided(n, dst1))
		time.Sleep(time.Nanosecond)
		assert.NoError(t, avoided(n, dst1))
	})
}

// What has failed once is tried again soon, and what goes on failing is left alone for longer and longer.
func TestNegativesLastLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		n := newNegatives(30 * time.Second)
		pause := func(want time.Duration) {
			t.Helper()
			time.Sleep(time.Millisecond)
			began := time.Now()
			for range 10 { // together
				time.Sleep(time.Microsecond)
				n.add(dst1, broken, began)
			}
			time.Sleep(want - 10*time.Microsecond)
			assert.Equal(t, broken, avoided(n, dst1))
			time.Sleep(10 * time.Microsecond)
			assert.NoError(t, avoided(n, dst1))
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			pause(want * time.Second)
		}
		n.won(dst1)
		assert.Empty(t, n.m)
		pause(time.Second)
		time.Sleep(30*time.Second - time.Millisecond)
		pause(time.Second) // the last one is long ago
		n.ttl = time.Millisecond
		pause(time.Millisecond)
	})
}

func TestNegativesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		n := newNegatives(time.Minute)
		dst := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		}
		for i := range maxNegatives {
			n.add(dst(i), broken, time.Now())
			if i == maxNegatives/2 {
				time.Sleep(30 * time.Second)
			}
		}
		assert.Len(t, n.m, maxNegatives)
		n.add(dst(0), broken, time.Now())
		assert.Len(t, n.m, maxNegatives, "one that is known needs no room")
		n.add(dst(maxNegatives), broken, time.Now())
		assert.Len(t, n.m, maxNegatives)
		assert.Equal(t, broken, avoided(n, dst(maxNegatives)))
		time.Sleep(30*time.Second + firstPause)
		n.add(dst(maxNegatives+1), broken, time.Now())
		assert.LessOrEqual(t, len(n.m), maxNegatives/2+2, "those past their time go first")
		for i := range 3 * maxNegatives {
			n.add(dst(5000+i), broken, time.Now())
		}
		assert.Len(t, n.m, maxNegatives)
	})
}

func TestNegativesOff(t *testing.T) {
	n := newNegatives(-1)
	n.add(dst1, errors.New("broken"), time.Now())
	assert.NoError(t, avoided(n, dst1))
}

func TestLateIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		n := newNegatives(30 * time.Second)
		lose := func() {
			time.Sleep(time.Millisecond)
			n.late(dst1, late, time.Now())
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			for range lateLimit - 1 {
				lose()
				assert.NoError(t, avoided(n, dst1))
			}
			n.won(dst1)
		}
		for range lateLimit {
			time.Sleep(30 * time.Second)
			assert.NoError(t, avoided(n, dst1))
			lose()
		}
		assert.NoError(t, avoided(n, dst1), "they were not in a row")
		for range lateLimit - 1 {
			lose()
		}
		assert.Equal(t, late, avoided(n, dst1))
		n.won(dst1)
		assert.NoError(t, avoided(n, dst1))
		assert.Empty(t, n.m)
	})
}

// A client that opens many connections at a time is not kept off the SAN because all of them were slow.
func TestLateTogetherIsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		n := newNegatives(30 * time.Second)
		for range lateLimit - 1 {
			time.Sleep(time.Millisecond)
			began := time.Now()
			for range 10 {
				time.Sleep(time.Millisecond)
				n.late(dst1, late, began)
				assert.NoError(t, avoided(n, dst1))
			}
		}
		time.Sleep(time.Millisecond)
		n.late(dst1, late, time.Now())
		assert.Equal(t, late, avoided(n, dst1))
	})
}

func TestLateForgetsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		n := newNegatives(time.Minute)
		began := time.Now()
		n.add(dst1, broken, time.Now())
		n.late(dst1, errLate, began)
		assert.Equal(t, broken, avoided(n, dst1))
		time.Sleep(time.Minute)
		n.late(dst1, errLate, time.Now())
		assert.NoError(t, avoided(n, dst1), "once it is over, races count")
	})
}

// Who has said no again and again is believed for a moment, in proportion to what asking costs,
// and no longer.
func TestAnswersAreBelievedForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNegatives(30 * time.Second)
		no := func(took time.Duration) {
			began := time.Now()
			time.Sleep(took)
			n.failed(dst1, &failure{err: provider.StatusNoListener, lesson: lessonAsk, took: took}, began)
		}
		const took = 30 * time.Microsecond
		for range answerLimit - 1 {
			no(took)
			assert.NoError(t, avoided(n, dst1))
		}
		for _, took := range []time.Duration{took, 2 * took, time.Second} {
			no(took)
			pause := min(answerFactor*took, maxAnswer)
			time.Sleep(pause - 1)
			neg, ok := n.get(dst1)
			assert.True(t, ok)
			assert.Equal(t, ReasonNoListener, neg.route().Reason, "as if it had been asked")
			time.Sleep(time.Nanosecond)
			assert.NoError(t, avoided(n, dst1))
		}
		no(time.Second)
		n.forget(dst1.Port())
		assert.NoError(t, avoided(n, dst1), "somebody listens")

		n.add(dst1, provider.StatusLink, time.Now())
		n.forget(dst1.Port())
		assert.Equal(t, provider.StatusLink, avoided(n, dst1), "that is another matter")
		time.Sleep(firstPause)
		no(took)
		assert.NoError(t, avoided(n, dst1))
	})
}
