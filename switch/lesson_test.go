package sanswitch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
	"sansock/session"
)

// Of each status it is known what it says about the destination.
func TestLessonOfStatus(t *testing.T) {
	want := map[provider.Status]lesson{
		provider.StatusAborted:      lessonAvoid,
		provider.StatusDisconnected: lessonAvoid,
		provider.StatusExited:       lessonAvoid,
		provider.StatusExitedUnread: lessonAvoid,
		provider.StatusAccess:       lessonAvoid,
		provider.StatusLocal:        lessonAvoid,
		provider.StatusTooLong:      lessonAvoid,
		provider.StatusNotReady:     lessonAvoid,
		provider.StatusQueueFull:    lessonNone,
		provider.StatusNoMemory:     lessonNone,
		provider.StatusLimit:        lessonNone,
		provider.StatusBusy:         lessonNone,
		provider.StatusRefused:      lessonAvoid, // where it does not end the dial
		provider.StatusUnreachable:  lessonAvoid, // likewise
		provider.StatusNoListener:   lessonAsk,
		provider.StatusAddrInUse:    lessonNone,
		provider.StatusAddrNotAvail: lessonNone,
		provider.StatusTimeout:      lessonAvoid,
		provider.StatusLink:         lessonAvoid,
		provider.StatusUnsupported:  lessonAvoid,
		provider.StatusClosed:       lessonNone,
	}
	for s := provider.StatusOK + 1; s.Error() != "unknown status"; s++ {
		l, ok := want[s]
		assert.True(t, ok, "%v is not in the table", s)
		err := &provider.Error{Op: "dial", Status: s}
		assert.Equal(t, l, lessonOf(err, 0), s.Error())
		if l == lessonAsk {
			l = lessonAvoid
		}
		assert.Equal(t, l, lessonOf(err, atOnce), "%v that takes its time", s)
	}
}

func TestLessonOfOthers(t *testing.T) {
	rejected := func(r rejection) error {
		return &provider.Error{Op: "dial", Status: provider.StatusRefused, Reason: r.bytes()}
	}
	for _, c := range []struct {
		err  error
		want lesson
	}{
		{rejected(rejectBusy), lessonNone},
		{rejected(rejectFamily), lessonAvoid},
		{&session.RefusedError{Code: session.RefusedBusy}, lessonNone},
		{&session.RefusedError{Code: session.RefusedMemory}, lessonAsk},
		{&session.RefusedError{Code: session.RefusedVersion}, lessonAvoid},
		{session.ErrMemory, lessonNone},
		{session.ErrTimeout, lessonAvoid},
		{session.ErrVersion, lessonAvoid},
		{session.ErrProtocol, lessonAvoid},
		{context.Canceled, lessonNone},
		{context.DeadlineExceeded, lessonAvoid},
		{fmt.Errorf("no status"), lessonAvoid},
	} {
		assert.Equal(t, c.want, lessonOf(c.err, time.Millisecond), "%v, %v", c.err, peerReasonOf(c.err))
	}
}
