// Package remote drives a provider in another process, so that the conformance suite can have its two ends in two: the
// process of the suite has New's provider, the other one calls Serve. Calls go over a stream, one answer each. The memory
// that is registered is shared between the processes, so that the suite sees what happens to it.
//
// It is for tests: slow, and trusting.
package remote

import (
	"context"
	"errors"
	"net/netip"

	"sansock/provider"
)

// call is what a message asks for. Answers repeat it.
type call uint8

const (
	callOpen call = iota + 1 // Name and Attributes
	callPrefixes
	callDial
	callListen
	callShut // Provider.Close
	callAccept
	callUnlisten // Listener.Close
	callEstablish
	callReject
	callAllocate
	callRegister
	callExpose
	callDeregister
	callRecv
	callSend
	callWrite
	callRead
	callPoll
	callArm
	callExtension
	callInvalidate
	callSpin
	callAppend
	callUnread
	callClose
	callCancel // the context of another call has ended; no answer
	callWake   // the wake function was called; from the server, without a call
)

// message is a call or an answer. What the call has no use for is zero, and takes no room on the stream.
type message struct {
	ID     uint64 // of the call and its answer
	Call   call
	Object uint64 // the listener, request or endpoint meant, or made

	Local, Remote netip.AddrPort
	Deadline      int64 // of the context, in ns since 1970
	Ended         bool  // the context was cancelled before
	Number        int   // size, backlog, capacity
	Memory        segment
	Handle        provider.Handle
	Descriptor    provider.Descriptor
	Rights        provider.Rights
	Context       uint64
	Offset        uint64
	Solicited     bool
	Open          bool
	Data          []byte // to be appended
	Unread        bool
	Inline        [2][]byte
	Wake          provider.Wake
	GUID          provider.GUID
	Reason        []byte

	Failure     *failure
	Name        string
	Attributes  provider.Attributes
	Prefixes    []netip.Prefix
	Completions []provider.Completion
	Ready       bool
	Kind        extension
}

// segment is memory as it is called on the stream.
type segment struct {
	Place    place
	Off, Len int
	Handle   provider.Handle
}

type place uint8

const (
	placeNone      place = iota // nil
	placeShared                 // offset in the shared memory
	placeAllocated              // offset in what Handle names
	placeElsewhere              // memory that the server does not have
)

// extension says what Extension returned.
type extension uint8

const (
	extensionNil extension = iota
	extensionRead
	extensionCache
	extensionSpinner
	extensionAppender
	extensionOther
)

// failure is an error: a Status, or an Error with the cause, if that is an error that others compare.
type failure struct {
	Plain bool
	Error provider.Error
	Cause cause
}

type cause uint8

const (
	causeNone cause = iota
	causeCanceled
	causeDeadline
	causeOther
)

// pack makes a failure of an error.
func pack(err error) *failure {
	if err == nil {
		return nil
	}
	if s, ok := err.(provider.Status); ok {
		return &failure{Plain: true, Error: provider.Error{Status: s}}
	}
	f := &failure{Error: provider.Error{Status: provider.StatusOf(err), Op: err.Error()}}
	var e *provider.Error
	if errors.As(err, &e) {
		f.Error = provider.Error{Provider: e.Provider, Op: e.Op, Status: e.Status, Reason: e.Reason}
	}
	switch {
	case errors.Is(err, context.Canceled):
		f.Cause = causeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		f.Cause = causeDeadline
	case e == nil || e.Err != nil:
		f.Cause = causeOther
	}
	return f
}

// errOther stands for a cause that is only known to the server.
var errOther = errors.New("see the other process")

// err is the error again.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	if f.Plain {
		return f.Error.Status
	}
	e := f.Error
	switch f.Cause {
	case causeCanceled:
		e.Err = context.Canceled
	case causeDeadline:
		e.Err = context.DeadlineExceeded
	case causeOther:
		e.Err = errOther
	}
	return &e
}
