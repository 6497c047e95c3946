package providertest

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"

	"sansock/provider"
)

var closeRules = []rule{
	{Rule{"close/aborts", "Close completes every posted operation with StatusAborted, before it returns, and then nothing."},
		provesCloseAborts},
	{Rule{"close/peer-sees", "When the peer closes, posted operations complete, and then OpDisconnect, once and last."},
		provesPeerSees},
	{Rule{"close/delivers", "What was sent before Close arrives, before OpDisconnect."}, provesCloseDelivers},
	{Rule{"close/posting", "Posting and registering after Close is StatusClosed."}, provesPostingAfterClose},
	{Rule{"close/posting-disconnected", "Posting after the peer has closed is StatusDisconnected."}, provesPostingAfterEnd},
	{Rule{"close/twice", "Closing again does nothing, also at the same time."}, provesCloseTwice},
	{Rule{"close/both", "Both ends may close at the same time."}, provesCloseBoth},
	{Rule{"close/concurrent", "Close at the same time as posting loses no completion."}, provesCloseConcurrent},
	{Rule{"close/registrations", "Deregister works after Close; allocated memory stays readable until then."},
		provesRegistrationsAfterClose},
	{Rule{"close/wakes-peer", "A peer that sleeps learns of the end, whatever is posted."}, provesCloseWakesPeer},
}

func provesCloseAborts(x *rig) {
	x.eachWay(func(e, peer *end) {
		n := min(32, e.attr.MaxRecvs)
		region := e.register(x.mem(e, "receives", 16*n))
		var recvs []uint64
		for i := range n {
			recvs = append(recvs, e.must(e.recv(region.Segment(16*i, 16))))
		}
		peer.hear(16)
		peer.say([]byte("one"), false) // completes the first
		e.ok(recvs[0])
		// Sends and writes that may be under way.
		target := peer.expose(x.mem(peer, "target", 4096), provider.RightWrite)
		src := e.scratch(min(4096, e.attr.MaxRDMA))
		sends := []uint64{e.must(e.send(e.scratch(8), false)), e.must(e.write(src, target.Descriptor, 0))}
		e.close() // has looked that all have completed
		for i, id := range recvs[1:] {
			c, ok := e.done(id)
			if !ok {
				x.errorf("%s: receive %d has not completed", e.name, i+1)
			} else if c.Status != provider.StatusAborted {
				x.errorf("%s: closed: %s, it should be aborted", e.name, describe(c))
			}
		}
		for _, id := range sends {
			if c, ok := e.done(id); ok && c.Status != provider.StatusOK && c.Status != provider.StatusAborted {
				x.errorf("%s: closed: %s, it should be aborted", e.name, describe(c))
			}
		}
		x.pause(e, peer)
		if e.ep.Poll(nil) != 0 {
			x.errorf("%s: Poll of nothing has returned something", e.name)
		}
	})
}

func provesPeerSees(x *rig) {
	x.eachWay(func(e, peer *end) {
		n := min(32, e.attr.MaxRecvs)
		region := e.register(x.mem(e, "receives", 16*n))
		var recvs []uint64
		for i := range n {
			recvs = append(recvs, e.must(e.recv(region.Segment(16*i, 16))))
		}
		peer.close()
		e.gone() // the ledger has looked that it is the last
		for i, id := range recvs {
			c, ok := e.done(id)
			if !ok || c.Status == provider.StatusOK {
				x.errorf("%s: receive %d after the peer's Close: %s", e.name, i, describe(c))
			}
		}
		if last := e.log[len(e.log)-1]; last.Op != provider.OpDisconnect {
			x.errorf("%s: the last completion is %s", e.name, describe(last))
		} else if last.Status != provider.StatusDisconnected {
			x.errorf("%s: %s, and the peer has closed", e.name, describe(last))
		}
		x.pause(e)
	})
}

func provesCloseDelivers(x *rig) {
	for round := range max(2, x.Rounds/50) {
		x.eachWay(func(from, to *end) {
			n := 1 + round%min(24, to.attr.MaxRecvs, from.attr.MaxSends)
			const size = 256
			dst := x.mem(to, "receives", n*size)
			region := to.register(dst)
			var recvs []uint64
			for i := range n {
				recvs = append(recvs, to.must(to.recv(region.Segment(i*size, size))))
			}
			src := x.mem(from, "messages", n*size)
			local := from.register(src)
			var last uint64
			for i := range n {
				s := local.Segment(i*size, size)
				if i%3 == 1 && i < n-1 && size <= from.attr.MaxInline {
					from.must(from.inline(s.Bytes, nil, false))
				} else {
					last = from.must(from.send(s, false))
				}
			}
			// Only the sender is polled, so that nothing has to have arrived yet.
			x.await("the last send", func() bool { return from.isDone(last) }, from)
			if c, _ := from.done(last); c.Status != provider.StatusOK {
				x.fatalf("%s: %s", from.name, describe(c))
			}
			from.close()
			to.gone()
			for i, r := range recvs {
				c, ok := to.done(r)
				if !ok || c.Status != provider.StatusOK || c.Len != size {
					x.fatalf("%s: message %d of %d, sent before Close: %s", to.name, i, n, describe(c))
				}
			}
			dst.want("messages sent before Close", 0, src.b)
		})
	}
}

// refuses checks that nothing can be posted to e any more.
func (e *end) refuses(when string, local provider.Segment, d provider.Descriptor, want provider.Status, std error) {
	x := e.x
	check := func(op string, err error) {
		x.wantStatus(op+" "+when, err, want)
		if !errors.Is(err, std) {
			x.errorf("%s %s: %v is not %v", op, when, err, std)
		}
	}
	_, err := e.recv(local)
	check("PostRecv", err)
	_, err = e.send(local, false)
	check("PostSend", err)
	if e.attr.MaxInline > 0 {
		_, err = e.inline([]byte{1}, nil, false)
		check("PostSend of an inline message", err)
	}
	_, err = e.write(local, d, 0)
	check("PostWrite", err)
	if e.reads() {
		_, err = e.rdma(provider.OpRead, local, d, 0)
		check("PostRead", err)
	}
}

func provesPostingAfterClose(x *rig) {
	x.eachWay(func(e, peer *end) {
		local := e.scratch(8)
		d := peer.expose(x.mem(peer, "target", 64), provider.RightWrite).Descriptor
		e.close()
		e.refuses("after Close", local, d, provider.StatusClosed, net.ErrClosed)
		m := x.mem(e, "memory", 64)
		_, err := e.ep.Register(m.b)
		x.wantStatus("Register after Close", err, provider.StatusClosed)
		_, err = e.ep.Expose(m.b, provider.RightWrite)
		x.wantStatus("Expose after Close", err, provider.StatusClosed)
		_, err = e.ep.Allocate(64)
		x.wantStatus("Allocate after Close", err, provider.StatusClosed)
		peer.gone()
	})
}

func provesPostingAfterEnd(x *rig) {
	x.eachWay(func(e, peer *end) {
		local := e.scratch(8)
		d := peer.expose(x.mem(peer, "target", 64), provider.RightWrite).Descriptor
		peer.close()
		e.gone()
		e.refuses("after OpDisconnect", local, d, provider.StatusDisconnected, syscall.ECONNRESET)
		x.pause(e)
		// Memory can still be given back.
		if err := e.ep.Deregister(local.Handle); err != nil {
			x.errorf("%s: Deregister after OpDisconnect: %v", e.name, err)
		}
		e.close()
		e.refuses("after OpDisconnect and Close", local, d, provider.StatusClosed, net.ErrClosed)
	})
}

func provesCloseTwice(x *rig) {
	x.eachWay(func(e, peer *end) {
		e.hear(16)
		var joins []func()
		for range 3 {
			joins = append(joins, x.spawn(func() {
				x.bounded("Close", func() {
					if err := e.ep.Close(); err != nil {
						x.errorf("%s: Close: %v", e.name, err)
					}
				})
			}))
		}
		for _, join := range joins {
			join()
		}
		e.close()
		peer.gone()
		x.bounded("Close", func() {
			if err := e.ep.Close(); err != nil {
				x.errorf("%s: Close again: %v", e.name, err)
			}
		})
		e.poll()
	})
}

func provesCloseBoth(x *rig) {
	for round := range max(4, x.Rounds/20) {
		a, _ := x.connect()
		var joins []func()
		for _, e := range a.both() {
			for range min(4, e.attr.MaxRecvs) {
				e.hear(16)
			}
		}
		for _, e := range a.both() {
			joins = append(joins, x.spawn(func() {
				e.trySay([]byte("bye"), true)
				if e.dialing {
					jitter(round)
				}
				e.close()
			}))
		}
		for _, join := range joins {
			join()
		}
	}
}

func provesCloseConcurrent(x *rig) {
	for round := range max(4, x.Rounds/20) {
		for _, byPeer := range []bool{false, true} {
			x.eachWay(func(e, peer *end) {
				n := min(64, peer.attr.MaxRecvs)
				region := peer.register(x.mem(peer, "receives", 16))
				for range n {
					peer.must(peer.recv(whole(region)))
				}
				d := peer.expose(x.mem(peer, "target", 64), provider.RightWrite).Descriptor
				local := e.scratch(16)
				recv := func() error { _, err := e.recv(local); return err }
				// Each writer has its own bytes of the target: who wins would be a race of the test's own.
				write := func() error { _, err := e.write(local, d, 0); return err }
				write2 := func() error { _, err := e.write(local, d, 32); return err }
				send := func() error { _, err := e.send(local, true); return err }
				say := func() error { _, err := e.trySay([]byte{1}, true); return err }
				// No more messages than receives, and then other operations until the end.
				var joins []func()
				var step atomic.Int64
				steps := make(chan struct{}, 1)
				for _, post := range [][2]func() error{{recv, recv}, {send, recv}, {write, write}, {say, write2}} {
					joins = append(joins, x.spawn(func() {
						for i := range 500 {
							do := post[0]
							if i >= n/2 {
								do = post[1]
							}
							switch err := do(); provider.StatusOf(err) {
							case provider.StatusOK, provider.StatusQueueFull:
							case provider.StatusClosed, provider.StatusDisconnected:
								return
							default:
								x.fatalf("%s: posting while it is closed: %v", e.name, err)
							}
							step.Add(1)
							select {
							case steps <- struct{}{}:
							default:
							}
							runtime.Gosched()
						}
					}))
				}
				joins = append(joins, x.spawn(func() {
					for range n {
						e.poll()
						e.ep.Arm(provider.WakeAny)
						runtime.Gosched()
					}
				}))
				for step.Load() < int64(5+7*round%60) {
					select {
					case <-steps:
					case <-x.failed:
						runtime.Goexit()
					}
				}
				if byPeer {
					peer.close()
					e.gone()
				} else {
					e.close()
					peer.gone()
				}
				for _, join := range joins {
					join()
				}
				e.close()
				peer.close()
			})
		}
	}
}

func provesRegistrationsAfterClose(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 64)
		local, exposed, posted := e.register(m), e.expose(m, provider.RightWrite), e.register(x.mem(e, "receive", 16))
		common, err := e.ep.Allocate(4096)
		if err != nil {
			x.fatalf("Allocate: %v", err)
		}
		noise(common.Bytes, 7)
		e.must(e.recv(whole(posted)))
		e.close()
		peer.gone()
		if i := differ(common.Bytes, noisy(4096, 7)); i >= 0 {
			x.errorf("%s: byte %d of allocated memory has changed with Close", e.name, i)
		}
		for what, r := range map[string]provider.Region{
			"registered memory": local, "exposed memory": exposed, "memory of an aborted receive": posted,
			"allocated memory": common,
		} {
			x.bounded("Deregister", func() {
				if err := e.ep.Deregister(r.Handle); err != nil {
					x.errorf("%s: Deregister of %s after Close: %v", e.name, what, err)
				}
			})
			x.wantStatus("Deregister of "+what+" again", e.ep.Deregister(r.Handle), provider.StatusAccess)
		}
	})
}

func provesCloseWakesPeer(x *rig) {
	x.eachWay(func(e, peer *end) {
		n := min(8, peer.attr.MaxRecvs)
		region := peer.register(x.mem(peer, "receives", n*16))
		var recvs []uint64
		for i := range n {
			recvs = append(recvs, peer.must(peer.recv(region.Segment(i*16, 16))))
		}
		// The peer sleeps as a session does: it looks only when it is woken.
		seen := x.spawn(func() {
			for {
				peer.poll()
				if peer.hasEnded() {
					return
				}
				if peer.ep.Arm(provider.WakeSolicited) {
					continue
				}
				peer.poll()
				if peer.hasEnded() {
					return
				}
				if !peer.tokenIn() {
					x.fatalf("%s: sleeps though the connection has ended", peer.name)
				}
			}
		})
		var data [8]byte
		for i := range n / 2 {
			binary.LittleEndian.PutUint64(data[:], uint64(i))
			e.say(data[:], i%2 == 0)
		}
		src := e.scratch(8)
		e.retry(func() error { _, err := e.send(src, true); return err })
		// Nobody but itself polls the peer.
		x.await("the peer to have the messages", func() bool { return peer.isDone(recvs[n/2]) }, e)
		x.pause(e)
		e.close()
		seen()
		for i := range n/2 + 1 {
			if c, _ := peer.done(recvs[i]); c.Status != provider.StatusOK || c.Len == 0 {
				x.errorf("%s: message %d, sent before Close: %s", peer.name, i, describe(c))
			}
		}
	})
}
