package providertest

import (
	"encoding/binary"
	"time"

	"sansock/provider"
)

var wakeRules = []rule{
	{Rule{"wake/once", "An armed endpoint is woken by the next completion, once for each arming."}, provesWakeOnce},
	{Rule{"wake/ready", "Arm reports completions that wait, and is armed nevertheless."}, provesWakeReady},
	{Rule{"wake/own", "The completion of an own send wakes, too."}, provesWakeOwn},
	{Rule{"wake/none", "Nobody is woken who is not armed, or armed for WakeNone."}, provesWakeNone},
	{Rule{"wake/replace", "Arming again replaces the mode."}, provesWakeReplace},
	{Rule{"wake/solicited", "A solicited message wakes an endpoint armed for WakeSolicited."}, provesWakeSolicited},
	{Rule{"wake/unsolicited", "Messages that are not solicited, and completions of own sends, do not. " +
		"(To be waived by providers that cannot tell them apart.)"}, provesWakeUnsolicited},
	{Rule{"wake/failure", "An operation that fails wakes an endpoint armed for WakeSolicited."}, provesWakeFailure},
	{Rule{"wake/disconnect", "The end of the connection wakes every armed endpoint, once."}, provesWakeDisconnect},
	{Rule{"wake/after-close", "When Close has returned nobody is woken any more."}, provesWakeAfterClose},
	{Rule{"wake/stress", "Arm, poll once more, sleep: no wake-up is lost, and none comes without arming."}, provesWakeStress},
	{Rule{"wake/stress-solicited", "Nor where only every third message is solicited."}, provesWakeStressSolicited},
}

// arm arms an end that has nothing to report.
func (e *end) arm(w provider.Wake) {
	if e.ep.Arm(w) {
		// A completion of which the rule has no use may just have come.
		e.poll()
		if e.ep.Arm(w) && e.poll() == 0 {
			e.x.fatalf("%s: Arm(%d) reports completions, and there are none", e.name, w)
		}
	}
}

// wakes waits until e has been woken n times, and watches that it stays so.
func (e *end) wakes(what string, n int64) {
	if !e.asleep(n) {
		e.x.fatalf("%s: %s: woken %d times, it should be %d", e.name, what, e.woken.Load(), n)
	}
	e.staysAt(what, n)
}

// staysAt watches that e is not woken beyond n times.
func (e *end) staysAt(what string, n int64) {
	e.x.quiet(e.name+": "+what+": woken once too often", func() bool { return e.woken.Load() <= n }, e.peer)
}

func provesWakeOnce(x *rig) {
	x.eachWay(func(from, to *end) {
		region := to.register(x.mem(to, "receive", 16))
		for i := int64(1); i <= 4; i++ {
			var recvs []uint64
			for range min(3, to.attr.MaxRecvs) {
				recvs = append(recvs, to.must(to.recv(whole(region))))
			}
			to.arm(provider.WakeAny)
			to.staysAt("armed, and nothing has come", i-1)
			for range recvs {
				from.say([]byte{1}, true)
			}
			to.wakes("armed once, several messages", i)
			for _, r := range recvs {
				to.x.await("a message", func() bool { to.poll(); return to.isDone(r) })
			}
		}
	})
}

func provesWakeReady(x *rig) {
	for _, w := range []provider.Wake{provider.WakeAny, provider.WakeSolicited} {
		x.eachWay(func(from, to *end) {
			region := to.register(x.mem(to, "receive", 16))
			first, second := to.must(to.recv(whole(region))), to.must(to.recv(whole(region)))
			to.arm(w)
			from.say([]byte{1}, true)
			to.wakes("a message", 1)
			// Woken, so there is something to be polled.
			if !to.ep.Arm(w) {
				x.fatalf("%s: woken, and yet Arm(%d) reports no completion", to.name, w)
			}
			to.poll()
			if !to.isDone(first) {
				x.fatalf("%s: Arm(%d) reports a completion, and Poll has none", to.name, w)
			}
			if to.ep.Arm(provider.WakeNone) {
				x.errorf("%s: Arm(WakeNone) reports completions", to.name)
			}
			// Armed with something waiting, and then polled: that counts as armed.
			to.arm(w)
			from.say([]byte{2}, true)
			to.wakes("a message", 2)
			third := to.must(to.recv(whole(region)))
			if !to.ep.Arm(w) {
				x.fatalf("%s: Arm(%d) reports no completion though one waits", to.name, w)
			}
			to.poll()
			if !to.isDone(second) {
				x.fatalf("%s: Arm(%d) reports a completion, and Poll has none", to.name, w)
			}
			n := to.woken.Load() // the arming may have been answered at once by what was waiting
			from.say([]byte{3}, true)
			if n == 2 && !to.asleep(3) {
				x.fatalf("%s: Arm reported completions, these were polled, and the next one has not woken", to.name)
			}
			to.ok(third)
		})
	}
}

func provesWakeOwn(x *rig) {
	x.eachWay(func(from, to *end) {
		for i := int64(1); i <= 3; i++ {
			r, _ := to.hear(16)
			src := from.scratch(8)
			from.arm(provider.WakeAny)
			s := from.must(from.send(src, false))
			from.wakes("the completion of a send", i)
			from.ok(s)
			to.ok(r)
			// The waiting above has armed it.
			from.ep.Arm(provider.WakeNone)
			from.woken.Store(i)
		}
	})
}

func provesWakeNone(x *rig) {
	x.eachWay(func(from, to *end) {
		region := to.register(x.mem(to, "receive", 16))
		arrives := func(what string) {
			r := to.must(to.recv(whole(region)))
			from.say([]byte{1}, true)
			x.await("a message", func() bool { to.poll(); return to.isDone(r) })
			to.staysAt(what, 0)
		}
		arrives("never armed")
		if to.ep.Arm(provider.WakeNone) {
			x.errorf("%s: Arm(WakeNone) reports completions", to.name)
		}
		arrives("armed for WakeNone")
		from.close()
		x.await("OpDisconnect", func() bool { to.poll(); return to.hasEnded() })
		to.staysAt("armed for WakeNone, the connection has ended", 0)
	})
}

func provesWakeReplace(x *rig) {
	x.eachWay(func(from, to *end) {
		region := to.register(x.mem(to, "receive", 16))
		message := func() {
			r := to.must(to.recv(whole(region)))
			from.say([]byte{1}, true)
			x.await("a message", func() bool { to.poll(); return to.isDone(r) })
		}
		to.arm(provider.WakeAny)
		to.ep.Arm(provider.WakeNone)
		message()
		to.staysAt("armed for WakeAny, then for WakeNone", 0)

		to.ep.Arm(provider.WakeNone)
		to.arm(provider.WakeAny)
		message()
		to.wakes("armed for WakeNone, then for WakeAny", 1)

		to.arm(provider.WakeSolicited)
		to.arm(provider.WakeAny)
		r := to.must(to.recv(whole(region)))
		from.say([]byte{1}, false)
		to.wakes("armed for WakeSolicited, then for WakeAny", 2)
		to.ok(r)
	})
}

func provesWakeSolicited(x *rig) {
	x.eachWay(func(from, to *end) {
		region := to.register(x.mem(to, "receive", 16))
		for i := int64(1); i <= 3; i++ {
			r := to.must(to.recv(whole(region)))
			to.arm(provider.WakeSolicited)
			if i%2 == 0 || from.attr.MaxInline == 0 {
				from.must(from.send(from.scratch(8), true))
			} else {
				from.must(from.inline([]byte{1}, nil, true))
			}
			to.wakes("a solicited message", i)
			x.await("a message", func() bool { to.poll(); return to.isDone(r) })
		}
	})
}

func provesWakeUnsolicited(x *rig) {
	x.eachWay(func(from, to *end) {
		region := to.register(x.mem(to, "receive", 16))
		plain, also := to.must(to.recv(whole(region))), to.must(to.recv(whole(region)))
		to.arm(provider.WakeSolicited)
		from.say([]byte{1}, false)
		// It has arrived when a write behind it has completed, or will in a moment: then it lies there.
		to.staysAt("an unsolicited message", 0)
		if to.ep.Arm(provider.WakeSolicited) {
			x.errorf("%s: Arm(WakeSolicited) reports an unsolicited message", to.name)
		}
		// The next one is solicited.
		from.say([]byte{2}, true)
		to.wakes("a solicited message behind an unsolicited one", 1)
		if !to.ep.Arm(provider.WakeSolicited) {
			x.errorf("%s: Arm(WakeSolicited) does not report a solicited message", to.name)
		}
		x.await("two messages", func() bool { to.poll(); return to.isDone(plain) && to.isDone(also) })

		// Own sends and writes that succeed do not wake either.
		to.arm(provider.WakeSolicited)
		n := to.woken.Load()
		r, _ := from.hear(16)
		s := to.must(to.send(to.scratch(8), true))
		x.await("a send", func() bool { to.poll(); from.poll(); return to.isDone(s) && from.isDone(r) })
		to.staysAt("the completion of an own send", n)
	})
}

func provesWakeFailure(x *rig) {
	x.eachWay(func(from, to *end) {
		r, _ := to.hear(8)
		to.arm(provider.WakeSolicited)
		if _, err := from.send(from.scratch(64), false); err != nil { // too long for the receive
			x.fatalf("PostSend: %v", err)
		}
		if !to.asleep(1) {
			x.fatalf("%s: a receive that failed has not woken", to.name)
		}
		to.completion(r)
	})
}

func provesWakeDisconnect(x *rig) {
	for _, w := range []provider.Wake{provider.WakeAny, provider.WakeSolicited} {
		for _, recvs := range []int{0, 2} {
			x.eachWay(func(from, to *end) {
				for range min(recvs, to.attr.MaxRecvs) {
					to.hear(16)
				}
				to.arm(w)
				from.close()
				// Receives cut short are completions, too, and may wake before the end is there.
				limit := time.Now().Add(x.Wait)
				for n := int64(1); !to.hasEnded(); n++ {
					if !to.asleep(n) {
						x.fatalf("%s: the end of the connection has not woken it, armed for %d", to.name, w)
					}
					to.poll()
					if !to.hasEnded() && to.ep.Arm(w) {
						to.poll()
						n--
						if time.Now().After(limit) {
							x.fatalf("%s: Arm reports completions, and there are none", to.name)
						}
					}
				}
				n := to.woken.Load()
				if to.ep.Arm(w) {
					x.errorf("%s: Arm reports completions after OpDisconnect", to.name)
				}
				to.staysAt("after OpDisconnect", n)
			})
		}
	}
}

func provesWakeAfterClose(x *rig) {
	for round := range max(4, x.Rounds/20) {
		x.eachWay(func(from, to *end) {
			n := min(16, to.attr.MaxRecvs)
			region := to.register(x.mem(to, "receive", 16))
			for range n {
				to.must(to.recv(whole(region)))
			}
			to.arm(provider.WakeAny)
			join := x.spawn(func() {
				for range n {
					if _, err := from.trySay([]byte{1}, true); err != nil {
						return
					}
				}
			})
			jitter(round)
			to.close()
			to.ep.Arm(provider.WakeAny)
			join()
			if round == 0 {
				to.staysAt("after Close", to.wokenAt)
			} else if now := to.woken.Load(); now != to.wokenAt {
				x.fatalf("%s: woken after Close had returned", to.name)
			}
			from.close()
		})
	}
}

func provesWakeStress(x *rig) { x.pingPong(provider.WakeAny) }

func provesWakeStressSolicited(x *rig) { x.pingPong(provider.WakeSolicited) }

// pingPong has both ends answer each other, asleep in between: armed, polled once more, then only woken.
func (x *rig) pingPong(w provider.Wake) {
	a, b := x.connect()
	rounds := 4 * x.Rounds
	burst := 1 // messages per turn, of which the last is solicited
	if w == provider.WakeSolicited {
		burst = max(1, min(3, a.attr.MaxRecvs/2, b.attr.MaxRecvs/2))
	}
	type receives struct {
		*mem
		region provider.Region
		ids    []uint64
	}
	var all [2]receives
	for i, e := range a.both() {
		window := min(2*burst, e.attr.MaxRecvs)
		m := x.mem(e, "receives", window*16)
		all[i] = receives{m, e.register(m), make([]uint64, window)}
		for k := range window {
			all[i].ids[k] = e.must(e.recv(all[i].region.Segment(k*16, 16)))
		}
	}
	var joins []func()
	for i, e := range a.both() {
		joins = append(joins, x.spawn(func() {
			armed := int64(0)
			timer := time.NewTimer(x.Wait)
			defer timer.Stop()
			turn := func(round int) {
				var data [8]byte
				for k := range burst {
					binary.LittleEndian.PutUint64(data[:], uint64(round*burst+k))
					e.say(data[:], k == burst-1)
				}
			}
			answer := func(round int) {
				for k := range burst {
					n := round*burst + k
					slot := n % len(all[i].ids)
					e.sleepFor(all[i].ids[slot], w, &armed, timer)
					if got := binary.LittleEndian.Uint64(all[i].b[slot*16:]); got != uint64(n) {
						x.fatalf("%s: message %d arrived where %d was due", e.name, got, n)
					}
					all[i].ids[slot] = e.must(e.recv(all[i].region.Segment(slot*16, 16)))
				}
			}
			for round := range rounds {
				if i == 0 {
					turn(round)
					answer(round)
				} else {
					answer(round)
					turn(round)
				}
			}
			if n := e.woken.Load(); n > armed {
				x.errorf("%s: woken %d times, armed %d times", e.name, n, armed)
			}
		}))
	}
	for _, join := range joins {
		join()
	}
}

// sleepFor waits for a receive as a session does, and never looks without being woken.
func (e *end) sleepFor(id uint64, w provider.Wake, armed *int64, timer *time.Timer) {
	for {
		e.poll()
		if e.isDone(id) {
			return
		}
		*armed++
		if e.ep.Arm(w) {
			continue
		}
		e.poll()
		if e.isDone(id) {
			return
		}
		timer.Reset(e.x.Wait)
		select {
		case <-e.token:
		case <-e.x.failed:
			e.x.giveUp()
		case <-timer.C:
			e.poll()
			if e.isDone(id) {
				e.x.fatalf("%s: a wake-up was lost: the message is here", e.name)
			}
			e.x.fatalf("%s: no message in %v", e.name, e.x.Wait)
		}
	}
}
