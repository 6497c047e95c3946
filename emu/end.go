package emu

import "sansock/provider"

// Close implements provider.Endpoint.
func (e *endpoint) Close() error {
	e.lock()
	first, lost := e.life == lifeOpen, e.gate&gateLost != 0
	if first {
		e.life = lifeClosed
	}
	e.gate |= gateOver
	e.cq.hidden = 0
	e.arm(provider.WakeNone)
	e.state.Or(lockClosing)
	e.unlock()

	if first {
		e.flush(true) // what has been sent arrives
		if !lost {
			e.peer.shut()
			e.peer.flush(true)
			e.peer.report(provider.StatusDisconnected)
		}
	}
	// From the gate on nothing begins. What is under way looks at it between pieces, and a wake
	// function is quick.
	e.lock()
	for e.work.own != 0 || e.work.peers != 0 || e.rq.copying || e.state.Load() >= lockWaker {
		e.wait()
	}
	if first {
		e.rq.first, e.rq.held = firstTaken, nil
		if e.slow != nil {
			e.slow.alarm.Stop()
		}
		e.release()
	}
	e.unlock()
	if first {
		e.prov.forget(e)
		if e.conn.open.Add(-1) == 0 {
			e.conn.fab.putDown(e.conn.addr[0], e.conn.addr[1])
		}
	}
	return nil
}

// sever ends the connection at both ends, for a reason that neither end wanted. Both are shut
// before either hears of it: who has seen the end cannot send any more.
func (e *endpoint) sever(cause provider.Status) {
	e.shut()
	e.peer.shut()
	e.flush(false)
	e.peer.flush(false)
	e.report(cause)
	e.peer.report(cause)
}

// shut makes e take nothing more. When it returns, the peer does not touch the receives of e any
// more.
func (e *endpoint) shut() {
	e.lock()
	e.gate |= gateOver
	e.cq.hidden = 0
	for e.rq.copying {
		e.wait()
	}
	e.unlock()
}

// report tells of the end, after shut.
func (e *endpoint) report(cause provider.Status) {
	e.lock()
	if e.last.stage == lastNone && e.life == lifeOpen {
		e.last = last{lastPending, cause}
	}
	wake := e.rouse(true)
	e.unlock()
	if wake {
		e.callWake()
	}
}

// lose makes the link of e swallow everything in both directions.
func (e *endpoint) lose() {
	for _, x := range [2]*endpoint{e, e.peer} {
		x.lock()
		x.gate |= gateLost
		x.unlock()
	}
	e.flush(false)
	e.peer.flush(false)
}

// flush flushes what e sends through, if it has a shape.
func (e *endpoint) flush(inOrder bool) {
	if l := e.egress(); l != nil {
		l.flush(inOrder)
	}
}
