package sanswitch

import (
	"errors"
	"os"
	"syscall"

	"sansock/provider"
)

// rejection is what a listener sends with a rejected request, in one byte. A rejection without it is one which TCP would
// have met with too, and ends the dial with ECONNREFUSED. One that has it concerns the SAN alone, and sends the dialer to
// TCP, whatever the value, so that there can be more of them.
type rejection byte

const (
	rejectFinal  rejection = 0 // never sent
	rejectBusy   rejection = 1 // too many connections are being set up
	rejectFamily rejection = 2 // the listener is for the other family of addresses
	rejectFull   rejection = 3 // its backlog is full; there will be room, and TCP would wait
)

// bytes returns the reason to pass to Request.Reject.
func (r rejection) bytes() []byte {
	if r == rejectFinal {
		return nil
	}
	return []byte{byte(r)}
}

// reason is the reason that the rejection gives to the dialer.
func (r rejection) reason() Reason {
	switch r {
	case rejectBusy, rejectFull:
		return ReasonBusy
	case rejectFamily:
		return ReasonNoListener
	}
	return ReasonNone
}

// rejectionOf returns the rejection in the error of a provider's Dial.
func rejectionOf(err error) rejection {
	var pe *provider.Error
	if errors.As(err, &pe) && pe.Status == provider.StatusRefused && len(pe.Reason) > 0 {
		return rejection(pe.Reason[0])
	}
	return rejectFinal
}

// refusal returns the error after which there is no point in TCP, given the error of a provider's Dial, or nil: WSD's
// rule that ECONNREFUSED, ECONNRESET and EHOSTUNREACH come from a provider only where TCP would fail too. The
// status decides where there is one, as the cause below it may well be another's ECONNREFUSED.
func refusal(err error) error {
	errnos := []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH}
	var status provider.Status
	if errors.As(err, &status) {
		if rejectionOf(err) != rejectFinal {
			return nil
		}
		err = status
	}
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return os.NewSyscallError("connect", errno)
		}
	}
	return nil
}
