package provider

import (
	"context"
	"net/netip"
)

// EarlyDialer is an optional part of a Provider whose connection requests can carry a message, as those of most connection
// managers can carry private data. So two sessions agree without a round trip of their own.
type EarlyDialer interface {
	// DialEarly is Dial, but calls begin with the endpoint, if possible before the peer hears of the request. begin may use it
	// as Dial's caller would, but send no more than one message, of at most MaxFirstMessage bytes and inline, which then
	// travels with the request. Its error is that of DialEarly, which has closed the endpoint then, as after any other error
	// that comes after the call. Where the provider tries again, it calls begin again, with another endpoint. DialEarly returns
	// as soon as ctx ends, whatever the peer does.
	DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(Endpoint) error) (Endpoint, error)
}

// EarlyRequest is a Request whose acceptance can carry a message, likewise.
type EarlyRequest interface {
	Request

	// AcceptEarly is Accept, but calls begin with the endpoint, if possible before the peer's Dial succeeds. What the peer
	// has sent with the request is there to be polled. begin may do what it may in DialEarly; its message travels with the
	// acceptance. After an error of begin, which AcceptEarly returns, the peer's Dial fails, or its connection ends.
	AcceptEarly(ctx context.Context, begin func(Endpoint) error) (Endpoint, error)
}

// RequestNotifier is an optional part of a Listener that can do without a goroutine that waits for requests.
type RequestNotifier interface {
	// OnRequest has f called with every request from now on; Accept returns those from before, or of which f was not told. f is called from
	// any goroutine, perhaps one that is inside a method of the peer's provider, and several at a time. It must not wait,
	// but may accept or reject the request, which does not wait then, and use the endpoint. It is set once. A call may be
	// under way when Close returns.
	OnRequest(f func(Request))
}
