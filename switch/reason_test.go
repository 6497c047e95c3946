package sanswitch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
	"sansock/session"
)

func TestReasonsHaveTexts(t *testing.T) {
	seen := make(map[string]Reason)
	for r := range reasons {
		text := r.String()
		assert.NotEmpty(t, text, "reason %d", r)
		assert.NotContains(t, seen, text)
		seen[text] = r
	}
	assert.Equal(t, "unknown", reasons.String())
	assert.Equal(t, "tcp san other unknown", fmt.Sprint(PathTCP, PathSAN, PathOther, Path(0)))
}

// Every status of the SPI has its reason here, and only those.
func TestReasonOfStatus(t *testing.T) {
	want := map[provider.Status]Reason{
		provider.StatusAborted:      ReasonDisconnected,
		provider.StatusDisconnected: ReasonDisconnected,
		provider.StatusExited:       ReasonDisconnected,
		provider.StatusExitedUnread: ReasonDisconnected,
		provider.StatusAccess:       ReasonProviderFailed,
		provider.StatusLocal:        ReasonProviderFailed,
		provider.StatusTooLong:      ReasonProviderFailed,
		provider.StatusNotReady:     ReasonProviderFailed,
		provider.StatusQueueFull:    ReasonMemory,
		provider.StatusNoMemory:     ReasonMemory,
		provider.StatusLimit:        ReasonMemory,
		provider.StatusBusy:         ReasonProviderFailed,
		provider.StatusRefused:      ReasonRefused,
		provider.StatusUnreachable:  ReasonUnreachable,
		provider.StatusNoListener:   ReasonNoListener,
		provider.StatusAddrInUse:    ReasonLocalAddr,
		provider.StatusAddrNotAvail: ReasonLocalAddr,
		provider.StatusTimeout:      ReasonTimeout,
		provider.StatusLink:         ReasonLink,
		provider.StatusUnsupported:  ReasonUnsupported,
		provider.StatusClosed:       ReasonProviderFailed,
	}
	n := 0
	for s := provider.StatusOK + 1; s.Error() != "unknown status"; s++ {
		n++
		if assert.Contains(t, want, s, s.Error()) {
			assert.Equal(t, want[s], reasonOf(s), s.Error())
			assert.Equal(t, want[s], reasonOf(&provider.Error{Provider: "p", Op: "dial", Status: s}), s.Error())
			assert.Equal(t, ReasonNone, peerReasonOf(s), s.Error())
		}
	}
	assert.Len(t, want, n)
}

func TestReasonOfOtherErrors(t *testing.T) {
	rejected := func(reason ...byte) error {
		return &provider.Error{Provider: "p", Op: "dial", Status: provider.StatusRefused, Reason: reason}
	}
	for _, c := range []struct {
		err        error
		want, peer Reason
	}{
		{nil, ReasonSAN, ReasonNone},
		{session.ErrTimeout, ReasonTimeout, ReasonNone},
		{session.ErrVersion, ReasonVersion, ReasonNone},
		{session.ErrProtocol, ReasonNegotiation, ReasonNone},
		{fmt.Errorf("%w: no hello", session.ErrProtocol), ReasonNegotiation, ReasonNone},
		{session.ErrMemory, ReasonMemory, ReasonNone},
		{session.ErrProvider, ReasonUnsupported, ReasonNone},
		{errors.Join(session.ErrMemory, provider.StatusLink), ReasonMemory, ReasonNone},
		{&session.RefusedError{Code: session.RefusedMemory}, ReasonPeerDeclined, ReasonMemory},
		{&session.RefusedError{Code: session.RefusedVersion}, ReasonPeerDeclined, ReasonVersion},
		{&session.RefusedError{Code: session.RefusedBusy}, ReasonPeerDeclined, ReasonBusy},
		{&session.RefusedError{Code: 99}, ReasonPeerDeclined, ReasonNone},
		{context.Canceled, ReasonCanceled, ReasonNone},
		{context.DeadlineExceeded, ReasonTimeout, ReasonNone},
		{&provider.Error{Status: provider.StatusAborted, Err: context.Canceled}, ReasonCanceled, ReasonNone},
		{errors.New("something else"), ReasonProviderFailed, ReasonNone},
		{&provider.Error{Status: provider.StatusNoListener, Err: fs.ErrPermission}, ReasonOtherUser, ReasonNone},
		{&provider.Error{Status: provider.StatusLink, Err: fs.ErrPermission}, ReasonLink, ReasonNone},
		{&provider.Error{Status: provider.StatusLink, Err: os.NewSyscallError("socket", syscall.EAFNOSUPPORT)}, ReasonSystem, ReasonNone},
		{&provider.Error{Status: provider.StatusNoMemory, Err: syscall.EPERM}, ReasonSystem, ReasonNone},
		{&provider.Error{Status: provider.StatusNoMemory, Err: syscall.ENOMEM}, ReasonMemory, ReasonNone},
		{&provider.Error{Status: provider.StatusNoListener, Err: syscall.EPERM}, ReasonOtherUser, ReasonNone},
		{rejected(), ReasonRefused, ReasonNone},
		{rejected(rejectBusy.bytes()...), ReasonPeerDeclined, ReasonBusy},
		{rejected(rejectFamily.bytes()...), ReasonPeerDeclined, ReasonNoListener},
		{rejected(200, 1, 2), ReasonPeerDeclined, ReasonNone},
	} {
		assert.Equal(t, c.want, reasonOf(c.err), "%v", c.err)
		assert.Equal(t, c.peer, peerReasonOf(c.err), "%v", c.err)
	}
}

// Errors that a status has no good words for say what is behind them.
func TestWordedErrors(t *testing.T) {
	fail := func(s provider.Status, cause error) error {
		return &provider.Error{Provider: "emu", Op: "dial", Status: s, Err: cause}
	}
	for _, c := range []struct {
		err   error
		local string
		text  string
		want  Reason
		is    error
	}{
		{fail(provider.StatusNoListener, fs.ErrPermission), "[::]:0",
			"emu: dial: what listens there belongs to another user", ReasonOtherUser, fs.ErrPermission},
		{fail(provider.StatusAddrNotAvail, nil), "[::]:0", "emu: dial: no free port to dial from", ReasonPorts, provider.StatusAddrNotAvail},
		{fail(provider.StatusAddrNotAvail, nil), "127.0.0.1:0", "emu: dial: no free port to dial from", ReasonPorts, syscall.EADDRNOTAVAIL},
		{fail(provider.StatusAddrNotAvail, nil), "127.0.0.1:7", "emu: dial: address not served by the provider",
			ReasonLocalAddr, provider.StatusAddrNotAvail},
		{fail(provider.StatusNoListener, nil), "[::]:0", "emu: dial: no listener on the SAN", ReasonNoListener, provider.StatusNoListener},
		{io.ErrUnexpectedEOF, "[::]:0", "unexpected EOF", ReasonProviderFailed, io.ErrUnexpectedEOF},
	} {
		a := &attempt{local: netip.MustParseAddrPort(c.local)}
		err := a.worded(c.err)
		assert.EqualError(t, err, c.text)
		assert.Equal(t, c.want, reasonOf(err), c.text)
		assert.ErrorIs(t, err, c.is)
	}
	assert.Equal(t, lessonNone, lessonOf((&attempt{local: dst0}).worded(fail(provider.StatusAddrNotAvail, nil)), time.Second))
}

var dst0 = netip.MustParseAddrPort("0.0.0.0:0")
