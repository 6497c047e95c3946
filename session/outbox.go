package session

// letter is a message that is to be sent as soon as there is a credit for it, and what else it needs. A letter has no
// content of its own: it is written when it leaves. In order of urgency.
type letter uint8

const (
	letterGrow     letter = iota // a new receive region
	letterShrink                 // likewise, and the peer is asked to use up the old one
	letterDrain                  // the peer is asked to use up its older receives
	letterUseUp                  // nops that use them up
	letterClosed                 // the answer to kindClose
	letterPong                   // the answer to kindPing
	letterTarget                 // inbound: memory for the next bytes
	letterUntarget               // inbound: that memory is wanted back
	letterDone                   // inbound: no more is taken
	letterWrote                  // outbound: bytes of the target are written
	letterRevoke                 // outbound: the offer is taken back
	letterBlocked                // a Write waits
	letterFin                    // the end of the stream
	letterClose                  // the end of the connection
	letterGoOn                   // a hand-over is called off
	letterTaken                  // urgent messages are taken
	letterSuspend                // a hand-over, or the answer to one
	letters
)

// outbox holds the letters that are due.
type outbox struct{ due uint32 }

func (o *outbox) want(l letter)        { o.due |= 1 << l }
func (o *outbox) cancel(l letter)      { o.due &^= 1 << l }
func (o *outbox) wanted(l letter) bool { return o.due&(1<<l) != 0 }
