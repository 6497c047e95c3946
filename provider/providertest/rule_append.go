package providertest

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"sansock/provider"
)

var appendRules = []rule{
	{Rule{"append/content", "What is appended arrives behind an open message, in one completion, and changes nothing else."},
		provesAppended},
	{Rule{"append/room", "A message grows no further than its receive and MaxMessage."}, provesAppendRoom},
	{Rule{"append/open", "Only a message that was sent with Open grows."}, provesAppendOpen},
	{Rule{"append/last", "A message does not grow after another one was sent."}, provesAppendLast},
	{Rule{"append/write-order", "When what was appended arrives, every RDMA write posted before it is in place."},
		provesAppendWriteOrder},
	{Rule{"append/taken", "A message that was polled does not grow, nor does its receive change."}, provesAppendTaken},
	{Rule{"append/closed", "Nothing is appended after the end of the connection, at either side."}, provesAppendClosed},
	{Rule{"append/no-wake", "Append wakes nobody."}, provesAppendWakesNobody},
	{Rule{"append/order", "What is appended, and what is sent, arrives in order."}, provesAppendOrder},
	{Rule{"append/stress", "While one end appends and the other takes, no byte is lost, doubled or moved."},
		provesAppendStress},
	{Rule{"append/sleep", "Arm, poll once more, sleep: what is appended needs no wake-up of its own."}, provesAppendSleep},
}

// appender is the extension of e, nil if there is none.
func (e *end) appender() provider.Appender {
	ext, err := e.ep.Extension(provider.GUIDAppender)
	if err != nil {
		return nil
	}
	a, ok := ext.(provider.Appender)
	if !ok {
		e.x.fatalf("%s: Extension(GUIDAppender) is a %T, no Appender", e.name, ext)
	}
	return a
}

// eachAppender is eachWay for the ends that have the extension.
func (x *rig) eachAppender(f func(from, to *end, a provider.Appender)) {
	none := 0
	x.eachWay(func(from, to *end) {
		if a := from.appender(); a != nil {
			f(from, to, a)
		} else {
			none++
		}
	})
	if none == 2 {
		x.skip("there is no Appender")
	}
}

// open sends a message that may grow, whichever way there is, as soon as there is room for it.
func (e *end) open(data []byte, solicited bool) {
	s := provider.Send{Inline: [2][]byte{data}, Solicited: solicited, Open: true}
	if len(data) > e.attr.MaxInline {
		m := e.x.mem(e, "open message", len(data))
		copy(m.b, data)
		s.Inline, s.Local = [2][]byte{}, whole(e.register(m))
	}
	e.retry(func() error {
		_, err := e.post(entry{op: provider.OpSend, inline: s.IsInline()}, func(id uint64) error {
			s.Context = id
			return e.ep.PostSend(s)
		})
		return err
	})
}

// opened makes a message that grows if any does: it lies with a peer that does not look for it.
func (e *end) opened(data []byte) {
	e.peer.ep.Arm(provider.WakeNone)
	e.open(data, true)
}

// appends appends to a message that opened has made.
func (e *end) appends(a provider.Appender, data []byte) {
	if !a.Append(data) {
		e.x.fatalf("%s: %d bytes are not appended to the open message that was sent last", e.name, len(data))
	}
}

// declines has an Append fail.
func (e *end) declines(what string, a provider.Appender, data []byte) {
	if a.Append(data) {
		e.x.fatalf("%s: Append adds to %s", e.name, what)
	}
}

// arrives waits for a message.
func (e *end) arrives(id uint64, m *mem, want []byte) {
	if n := e.ok(id); n != len(want) {
		e.x.errorf("%s: a message of %d bytes, with what was appended, arrived with %d", e.name, len(want), n)
	}
	m.want("an open message", 0, want)
}

func provesAppended(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		for _, sizes := range [][]int{{1, 1}, {64, 64, 64}, {0, 5}, {7, 0, 9}, {100, 1, 2, 3, 4, 5, 50}} {
			var all []byte
			for _, n := range sizes {
				all = append(all, noisy(n, x.seed())...)
			}
			r, dst := to.hear(len(all) + 13)
			behind := bytes.Clone(dst.b[len(all):])
			from.opened(all[:sizes[0]])
			at := sizes[0]
			for _, n := range sizes[1:] {
				p := bytes.Clone(all[at : at+n])
				from.appends(a, p)
				noise(p, 1)
				at += n
			}
			to.arrives(r, dst, all)
			dst.want("what is behind an open message", len(all), behind)
		}
		from.talk()
	})
}

func provesAppendRoom(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		for _, size := range []int{200, from.attr.MaxMessage + 100} {
			most := min(size, from.attr.MaxMessage)
			if size > big {
				return
			}
			data := noisy(most, x.seed())
			r, dst := to.hear(size)
			behind := bytes.Clone(dst.b[most:])
			from.opened(data[:most-9])
			from.declines("a message beyond its room", a, make([]byte, 10))
			from.appends(a, data[most-9:most-4])
			from.declines("a message beyond its room", a, make([]byte, 5))
			from.appends(a, data[most-4:])
			from.declines("a message that fills its room", a, make([]byte, 1))
			to.arrives(r, dst, data)
			dst.want("what is behind an open message", most, behind)
		}
		// The receive is part of a registration, and what is around it belongs to others.
		m := x.mem(to, "memory", 300)
		region, around := to.register(m), bytes.Clone(m.b)
		r := to.must(to.recv(region.Segment(100, 100)))
		data := noisy(100, x.seed())
		from.opened(data[:50])
		from.appends(a, data[50:])
		from.declines("a message that fills its room", a, make([]byte, 20))
		to.ok(r)
		copy(around[100:], data)
		m.want("an open message in the midst of memory", 0, around)
	})
}

func provesAppendOpen(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		from.declines("no message at all", a, []byte{1})
		from.talk()
		to.ep.Arm(provider.WakeNone)
		r, dst := to.hear(64)
		from.say([]byte{1, 2, 3}, true)
		from.declines("a message that is not open", a, []byte{4})
		to.arrives(r, dst, []byte{1, 2, 3})
		// Nor does another end's sending open it.
		back, _ := from.hear(64)
		r, dst = to.hear(64)
		to.opened([]byte{1})
		from.say([]byte{5, 6, 7}, true)
		from.declines("a message that is not open, when the peer has sent one that is", a, []byte{8})
		from.ok(back)
		to.arrives(r, dst, []byte{5, 6, 7})
	})
}

func provesAppendLast(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		first, one := to.hear(64)
		second, two := to.hear(64)
		from.opened([]byte{1})
		from.say([]byte{2}, true)
		from.declines("a message before the last", a, []byte{3})
		to.arrives(first, one, []byte{1})
		to.arrives(second, two, []byte{2})
		// Where the last one is open too it grows, and not the other.
		first, one = to.hear(64)
		second, two = to.hear(64)
		from.opened([]byte{4})
		from.appends(a, []byte{5})
		from.opened([]byte{6})
		from.appends(a, []byte{7})
		to.arrives(first, one, []byte{4, 5})
		to.arrives(second, two, []byte{6, 7})
	})
}

func provesAppendWriteOrder(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		target := x.mem(to, "target", 64)
		region := to.expose(target, provider.RightWrite)
		for range max(4, x.Rounds/20) {
			r, dst := to.hear(64)
			src := from.scratch(64)
			from.opened([]byte{1})
			w := from.must(from.write(src, region.Descriptor, 0))
			grown := a.Append([]byte{2})
			x.await("an open message", func() bool { to.poll(); return to.isDone(r) }, from)
			if grown {
				target.want("a write before an Append", 0, src.Bytes)
				to.arrives(r, dst, []byte{1, 2})
			} else {
				to.arrives(r, dst, []byte{1})
			}
			from.ok(w)
		}
	})
}

func provesAppendTaken(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		for _, grow := range []bool{false, true} {
			r, dst := to.hear(64)
			want := []byte{1, 2}
			from.opened(want)
			if grow {
				from.appends(a, []byte{3})
				want = append(want, 3)
			}
			to.arrives(r, dst, want)
			dst.freeze()
			from.declines("a message that was polled", a, []byte{4})
			from.talk()
			dst.check("after an Append that came too late")
		}
	})
}

func provesAppendClosed(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		to.hear(64)
		from.opened([]byte{1})
		from.close()
		from.declines("a message of an endpoint that is closed", a, []byte{2})
	})
	x.eachAppender(func(from, to *end, a provider.Appender) {
		_, dst := to.hear(64)
		from.opened([]byte{1})
		to.close()
		dst.freeze() // it is the owner's now
		from.gone()
		from.declines("a message to an endpoint that is closed", a, []byte{2})
	})
}

func provesAppendWakesNobody(x *rig) {
	for _, w := range []provider.Wake{provider.WakeAny, provider.WakeSolicited} {
		x.eachAppender(func(from, to *end, a provider.Appender) {
			r, dst := to.hear(64)
			to.arm(w)
			from.open([]byte{1}, true)
			to.wakes("an open message", 1)
			a.Append([]byte{2})
			to.staysAt("what was appended to a message that has woken", 1)
			to.ep.Arm(w)
			a.Append([]byte{3})
			to.staysAt("what was appended to a message that Arm has reported", 1)
			to.ok(r)
			dst.want("an open message", 0, []byte{1})
		})
	}
}

// trickle sends a stream in small pieces: it appends where that goes, and sends an open message where it does not. The
// other end takes it in receives of one size.
type trickle struct {
	x        *rig
	from, to *end
	a        provider.Appender
	credits  atomic.Int64 // receives that nothing was sent for
	grown    int          // pieces that were appended

	m      *mem
	region provider.Region
	ids    []uint64
	size   int
	taken  int // messages
	got    []byte
}

func (x *rig) trickle(from, to *end, a provider.Appender, window, size int) *trickle {
	t := &trickle{x: x, from: from, to: to, a: a, size: size}
	window = min(window, to.attr.MaxRecvs)
	t.m = x.mem(to, "receives", window*size)
	t.region = to.register(t.m)
	t.ids = make([]uint64, window)
	for i := range window {
		t.repost(i)
	}
	return t
}

func (t *trickle) repost(slot int) {
	t.ids[slot] = t.to.must(t.to.recv(t.region.Segment(slot*t.size, t.size)))
	t.credits.Add(1)
}

// write sends a piece.
func (t *trickle) write(p []byte, solicited bool) {
	if t.a.Append(p) {
		t.grown++
		return
	}
	if t.credits.Load() == 0 {
		t.x.await("a receive", func() bool { return t.credits.Load() > 0 }, t.from)
	}
	t.credits.Add(-1)
	t.from.open(p, solicited)
}

// next is the slot of the next message.
func (t *trickle) next() int { return t.taken % len(t.ids) }

// take takes the next message, which has arrived.
func (t *trickle) take() {
	slot := t.next()
	n := t.to.ok(t.ids[slot])
	t.got = append(t.got, t.m.b[slot*t.size:][:n]...)
	t.taken++
	t.repost(slot)
}

// read takes messages until n bytes have come.
func (t *trickle) read(n int) {
	for len(t.got) < n {
		slot := t.next()
		for range 50 { // to be there when the next one comes
			if t.to.poll(); t.to.isDone(t.ids[slot]) {
				break
			}
		}
		t.x.await("a message", func() bool { t.to.poll(); return t.to.isDone(t.ids[slot]) }, t.to)
		t.take()
	}
}

// compare looks whether all has come.
func (t *trickle) compare(want []byte) {
	if i := differ(t.got, want); i >= 0 {
		t.x.errorf("%s: byte %d of a stream is wrong or missing; %d bytes came, %d were sent", t.to.name, i, len(t.got), len(want))
	}
}

// pieces cuts data in pieces of up to most bytes.
func pieces(data []byte, most int) (all [][]byte) {
	for i := 0; len(data) > 0; i++ {
		n := min(1+i*7%most, len(data))
		all = append(all, data[:n])
		data = data[n:]
	}
	return all
}

func provesAppendOrder(x *rig) {
	x.eachAppender(func(from, to *end, a provider.Appender) {
		data := noisy(20*max(50, x.Rounds), x.seed())
		t := x.trickle(from, to, a, 8, 100)
		to.ep.Arm(provider.WakeNone)
		sent := 0
		for i, p := range pieces(data, 40) {
			if i%5 == 4 || t.credits.Load() == 0 {
				t.read(sent)
				to.ep.Arm(provider.WakeNone)
			}
			if i%7 == 6 { // not open, in between
				t.credits.Add(-1)
				from.say(p, false)
			} else {
				t.write(p, i%2 == 0)
			}
			sent += len(p)
		}
		t.read(sent)
		t.compare(data)
		if t.grown == 0 {
			x.errorf("%s: nothing was appended", from.name)
		}
	})
}

func provesAppendStress(x *rig) {
	a, _ := x.connect()
	var joins []func()
	for _, from := range a.both() {
		app := from.appender()
		if app == nil {
			continue
		}
		data := noisy(500*max(20, x.Rounds), x.seed())
		t := x.trickle(from, from.peer, app, 8, 256)
		joins = append(joins, x.spawn(func() {
			for _, p := range pieces(data, 40) {
				t.write(p, true)
			}
		}), x.spawn(func() {
			t.read(len(data))
			t.compare(data)
		}))
	}
	for _, join := range joins {
		join()
	}
}

// provesAppendSleep has a reader that never looks without being woken, and a writer that goes on when it has read all.
func provesAppendSleep(x *rig) {
	for _, w := range []provider.Wake{provider.WakeAny, provider.WakeSolicited} {
		x.eachAppender(func(from, to *end, a provider.Appender) {
			burst := min(4, to.attr.MaxRecvs)
			const piece = 16
			rounds := 2 * max(20, x.Rounds)
			data := noisy(rounds*burst*piece, x.seed())
			t := x.trickle(from, to, a, burst, burst*piece)
			read := make(chan struct{}, 1)
			writer := x.spawn(func() {
				for round, all := range slices.Collect(slices.Chunk(data, burst*piece)) {
					for _, p := range slices.Collect(slices.Chunk(all, piece)) {
						t.write(p, true)
					}
					if round%4 == 0 {
						jitter(round)
					}
					select {
					case <-read:
					case <-x.failed:
						return
					}
				}
			})
			armed := int64(0)
			timer := time.NewTimer(x.Wait)
			defer timer.Stop()
			for round := range rounds {
				for len(t.got) < (round+1)*burst*piece {
					to.sleepFor(t.ids[t.next()], w, &armed, timer)
					t.take()
				}
				read <- struct{}{}
			}
			writer()
			t.compare(data)
			if n := to.woken.Load(); n > armed {
				x.errorf("%s: woken %d times, armed %d times", to.name, n, armed)
			}
		})
	}
}
