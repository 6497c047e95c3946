package providertest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"sansock/provider"
)

var messageRules = []rule{
	{Rule{"message/content", "A message arrives with its length and content, and changes nothing else."}, provesContent},
	{Rule{"message/empty", "A message of no bytes is a message."}, provesEmpty},
	{Rule{"message/largest", "A message of MaxMessage bytes arrives."}, provesLargest},
	{Rule{"message/too-long", "A message longer than MaxMessage is StatusTooLong, and nothing is posted."}, provesTooLong},
	{Rule{"message/inline", "Inline pieces arrive after each other, and may be overwritten at once."}, provesInline},
	{Rule{"message/inline-too-long", "Inline pieces longer than MaxInline together are StatusTooLong."}, provesInlineTooLong},
	{Rule{"message/order", "Messages arrive in the order sent, in the receives in the order posted."}, provesOrder},
	{Rule{"message/reuse", "When a send has completed its memory may be used again."}, provesReuse},
	{Rule{"message/context", "Any context comes back as it was."}, provesContexts},
	{Rule{"message/longer-than-receive", "A message longer than the receive is an error, and writes nothing beyond it."},
		provesLongerThanReceive},
	{Rule{"message/first-held", "The first message, up to MaxFirstMessage, waits for a receive."}, provesFirstHeld},
	{Rule{"message/unposted", "Any other message without a receive waits, or ends the connection: it is never dropped."},
		provesUnposted},
	{Rule{"message/concurrent", "Goroutines that post to one endpoint at the same time lose and mix up nothing."},
		provesConcurrent},
	{Rule{"message/many", "A long stream of messages both ways arrives as it was sent."}, provesMany},
}

// big bounds the memory that a rule uses where the attributes would allow more.
const big = 8 << 20

// sizes are lengths of messages that are worth a try, up to most.
func sizes(most int) []int {
	all := []int{1, 2, 7, 8, 63, 64, 65, 255, 256, 257, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20}
	return slices.DeleteFunc(all, func(n int) bool { return n > most })
}

func provesContent(x *rig) {
	x.eachWay(func(from, to *end) {
		for _, n := range sizes(from.attr.MaxMessage) {
			src := x.mem(from, "message", n)
			src.freeze()
			dst := x.mem(to, "receive", n+13)
			before := bytes.Clone(dst.b)
			r := to.must(to.recv(whole(to.register(dst))))
			s := from.must(from.send(whole(from.register(src)), false))
			if got := to.ok(r); got != n {
				x.errorf("%s: a message of %d bytes arrived with %d", to.name, n, got)
			}
			from.ok(s)
			dst.want("a message", 0, src.b)
			dst.want("what is behind a message", n, before[n:])
		}
	})
}

func provesEmpty(x *rig) {
	x.eachWay(func(from, to *end) {
		dst := x.mem(to, "receive", 32)
		region := to.register(dst)
		dst.freeze()
		send := func() {
			s := from.scratch(8)
			from.ok(from.must(from.send(provider.Segment{Bytes: s.Bytes[:0], Handle: s.Handle}, false)))
		}
		inline := func() { from.must(from.inline(nil, nil, false)) }
		for i, say := range []func(){send, inline, send} {
			if i == 1 && from.attr.MaxInline == 0 {
				continue
			}
			r := to.must(to.recv(whole(region)))
			say()
			if got := to.ok(r); got != 0 {
				x.errorf("%s: an empty message arrived with %d bytes", to.name, got)
			}
		}
		from.talk()
	})
}

func provesLargest(x *rig) {
	x.eachWay(func(from, to *end) {
		n := from.attr.MaxMessage
		if n > big {
			return
		}
		src := x.mem(from, "message", n)
		r, dst := to.hear(n)
		s := from.must(from.send(whole(from.register(src)), false))
		if got := to.ok(r); got != n {
			x.errorf("%s: a message of %d bytes arrived with %d", to.name, n, got)
		}
		from.ok(s)
		dst.want("a message", 0, src.b)
	})
}

func provesTooLong(x *rig) {
	x.eachWay(func(from, to *end) {
		n := from.attr.MaxMessage + 1
		if n > big {
			return
		}
		src := from.scratch(n)
		to.hear(n)
		_, err := from.send(src, false)
		x.wantStatus("a message of MaxMessage+1 bytes", err, provider.StatusTooLong)
		x.quiet("a message that was refused had an effect", func() bool { return len(to.log)+len(from.log) == 0 }, from, to)
	})
}

func provesInline(x *rig) {
	x.eachWay(func(from, to *end) {
		most := min(from.attr.MaxInline, 1<<20)
		if most == 0 {
			return
		}
		var pieces [][2]int
		for _, n := range sizes(min(most, 4097)) {
			pieces = append(pieces, [2]int{n, 0}, [2]int{0, n}, [2]int{n / 2, n - n/2}, [2]int{n - n/3, n / 3})
		}
		pieces = append(pieces, [2]int{most, 0}, [2]int{most / 2, most - most/2}, [2]int{1, most - 1})
		for _, p := range pieces {
			n := p[0] + p[1]
			r, dst := to.hear(n)
			a, b := noisy(p[0], x.seed()), noisy(p[1], x.seed())
			want := slices.Concat(a, b)
			from.must(from.inline(a, b, false))
			noise(a, 1)
			noise(b, 2)
			if got := to.ok(r); got != n {
				x.errorf("%s: an inline message of %d+%d bytes arrived with %d", to.name, p[0], p[1], got)
			}
			dst.want("an inline message", 0, want)
		}
	})
}

func provesInlineTooLong(x *rig) {
	x.eachWay(func(from, to *end) {
		n := from.attr.MaxInline + 1
		if n > big {
			return
		}
		to.hear(n)
		for _, k := range []int{n, 0, n / 2} {
			_, err := from.inline(make([]byte, k), make([]byte, n-k), false)
			x.wantStatus("an inline message of MaxInline+1 bytes", err, provider.StatusTooLong)
		}
		x.quiet("a message that was refused had an effect", func() bool { return len(to.log)+len(from.log) == 0 }, from, to)
	})
}

func provesOrder(x *rig) {
	x.eachWay(func(from, to *end) {
		n := min(64, to.attr.MaxRecvs, from.attr.MaxSends)
		const size = 300
		dst := x.mem(to, "receives", n*size)
		region := to.register(dst)
		var recvs []uint64
		for i := range n {
			recvs = append(recvs, to.must(to.recv(region.Segment(i*size, size))))
		}
		var want [][]byte
		for i := range n {
			data := noisy(1+(i*37)%size, x.seed())
			want = append(want, data)
			if i%2 == 0 && len(data) <= from.attr.MaxInline {
				from.must(from.inline(data[:i%len(data)], data[i%len(data):], false))
			} else {
				src := x.mem(from, "message", len(data))
				copy(src.b, data)
				from.must(from.send(whole(from.register(src)), false))
			}
		}
		for i, r := range recvs {
			if got := to.ok(r); got != len(want[i]) {
				x.errorf("%s: receive %d has %d bytes, message %d had %d", to.name, i, got, i, len(want[i]))
			}
			dst.want("a message", i*size, want[i])
		}
		var order []uint64
		for _, c := range to.log {
			order = append(order, c.Context)
		}
		if !slices.Equal(order, recvs) {
			x.errorf("%s: receives have completed in another order than they were posted", to.name)
		}
	})
}

func provesReuse(x *rig) {
	x.eachWay(func(from, to *end) {
		n := min(from.attr.MaxMessage, 64<<10)
		src := x.mem(from, "message", n)
		region := from.register(src)
		for range 4 {
			r, dst := to.hear(n)
			want := bytes.Clone(src.b)
			from.ok(from.must(from.send(whole(region), false)))
			noise(src.b, x.seed())
			to.ok(r)
			if !dst.want("a message whose memory was used again after its completion", 0, want) {
				return
			}
		}
	})
}

func provesContexts(x *rig) {
	a, b := x.connect()
	contexts := []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, 1<<64 - 1, 0x0123456789abcdef}
	contexts = contexts[:min(len(contexts), b.attr.MaxRecvs)]
	// These are not the ledger's, so nothing here goes through it.
	b.mu.Lock()
	defer b.mu.Unlock()
	dst := b.scratch(16)
	for _, c := range contexts {
		if err := b.ep.PostRecv(provider.Recv{Context: c, Buffer: dst}); err != nil {
			x.fatalf("PostRecv: %v", err)
		}
	}
	var got []uint64
	for range contexts {
		a.say([]byte("x"), false)
	}
	x.await("completions", func() bool {
		for {
			n := b.ep.Poll(b.buf[:])
			for _, c := range b.buf[:n] {
				got = append(got, c.Context)
			}
			if n == 0 {
				return len(got) >= len(contexts)
			}
		}
	}, a)
	if !slices.Equal(got, contexts) {
		x.errorf("posted with contexts %x, completed with %x", contexts, got)
	}
}

func provesLongerThanReceive(x *rig) {
	x.eachWay(func(from, to *end) {
		for _, inline := range []bool{false, true} {
			data := noisy(200, x.seed())
			if inline && len(data) > from.attr.MaxInline {
				continue
			}
			from, to = x.alive(from, to)
			r, _ := to.hear(40)
			var s uint64
			if inline {
				s = from.must(from.inline(data, nil, false))
			} else {
				src := x.mem(from, "message", len(data))
				copy(src.b, data)
				s = from.must(from.send(whole(from.register(src)), false))
			}
			if c := to.completion(r); c.Status == provider.StatusOK {
				x.errorf("%s: a message of %d bytes for a receive of 40: %s", to.name, len(data), describe(c))
			}
			if !inline {
				from.completion(s) // whatever it says
			}
			// The connection may go on or end, but it ends for both.
			x.pause(from, to)
			if from.hasEnded() || to.hasEnded() {
				from.gone()
				to.gone()
			} else {
				from.talk()
			}
		}
	})
}

func provesFirstHeld(x *rig) {
	for _, n := range []int{provider.MaxFirstMessage, 1} {
		for _, inline := range []bool{false, true} {
			a, b := x.connect()
			// Both ends begin, as in a negotiation where each goes ahead.
			var data [2][]byte
			for i, e := range a.both() {
				data[i] = noisy(n, x.seed())
				if inline && n <= e.attr.MaxInline {
					e.must(e.inline(data[i], nil, true))
				} else {
					src := x.mem(e, "message", n)
					copy(src.b, data[i])
					e.must(e.send(whole(e.register(src)), true))
				}
			}
			x.quiet("the connection has ended: a first message was not held",
				func() bool { return !a.hasEnded() && !b.hasEnded() }, a, b)
			for i, e := range b.both() {
				r, dst := e.hear(provider.MaxFirstMessage)
				if got := e.ok(r); got != n {
					x.errorf("%s: the first message had %d bytes, %d arrived", e.name, n, got)
				}
				dst.want("the first message", 0, data[i])
			}
			a.talk()
		}
	}
}

func provesUnposted(x *rig) {
	x.eachWay(func(from, to *end) {
		first, _ := to.hear(16)
		from.say([]byte{1}, false)
		to.ok(first)
		// The rest finds no receive.
		var err error
		for i := byte(2); i < 5 && err == nil; i++ {
			_, err = from.trySay([]byte{i}, false)
		}
		if err != nil {
			x.wantStatus("a message to a peer without a receive", err, provider.StatusDisconnected, provider.StatusQueueFull)
		}
		x.pause(from, to)
		for i := byte(2); i < 5; i++ {
			m := x.mem(to, "receive", 16)
			r, err := to.recv(whole(to.register(m)))
			if err != nil {
				x.wantStatus("a receive that comes late", err, provider.StatusDisconnected)
				break
			}
			if c := to.completion(r); c.Status != provider.StatusOK {
				break
			}
			if m.b[0] != i {
				x.fatalf("%s: message %d arrived where message %d was due", to.name, m.b[0], i)
			}
			if i == 4 {
				from.talk()
				return
			}
		}
		to.gone()
		from.gone()
	})
}

// provesConcurrent has several goroutines send over both ends at once.
func provesConcurrent(x *rig) {
	const posters, size = 4, 64
	a, _ := x.connect()
	ends := a.both()
	for range max(4, x.Rounds/50) {
		// A round has as many messages as there are receives.
		var dst [2]*mem
		var recvs [2][]uint64
		each := 0 // messages of one poster
		for i, e := range ends {
			each = min(32, e.attr.MaxRecvs/posters)
			if each == 0 {
				x.skip("too few receives")
			}
			dst[i] = x.mem(e, "receives", posters*each*size)
			region := e.register(dst[i])
			var mu sync.Mutex
			var joins []func()
			recvs[i] = make([]uint64, posters*each)
			next := 0
			for range posters {
				joins = append(joins, x.spawn(func() {
					post := func() {
						mu.Lock() // so that the order is known
						defer mu.Unlock()
						recvs[i][next] = e.must(e.recv(region.Segment(next*size, size)))
						next++
					}
					for range each {
						post()
					}
				}))
			}
			for _, join := range joins {
				join()
			}
		}
		var joins []func()
		for _, e := range ends {
			n := min(32, e.peer.attr.MaxRecvs/posters)
			for p := range posters {
				joins = append(joins, x.spawn(func() {
					src := e.scratch(n * size)
					for i := range n {
						data := src.Bytes[i*size : (i+1)*size]
						binary.LittleEndian.PutUint32(data, uint32(p))
						binary.LittleEndian.PutUint32(data[4:], uint32(i))
						e.retry(func() error {
							var err error
							if i%2 == 0 && size <= e.attr.MaxInline {
								_, err = e.inline(data[:5], data[5:], i%3 == 0)
							} else {
								_, err = e.send(provider.Segment{Bytes: data, Handle: src.Handle}, i%3 == 0)
							}
							return err
						})
					}
				}))
			}
		}
		for _, join := range joins {
			join()
		}
		for i, e := range ends {
			var next [posters]uint32
			for k, r := range recvs[i] {
				if n := e.ok(r); n != size {
					x.fatalf("%s: a message of %d bytes arrived with %d", e.name, size, n)
				}
				data := dst[i].b[k*size:]
				p, seq := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
				if p >= posters || seq != next[p] {
					x.fatalf("%s: receive %d has message %d of poster %d", e.name, k, seq, p)
				}
				next[p]++
			}
		}
	}
}

// provesMany streams in both directions with receives that are posted again as they complete.
func provesMany(x *rig) {
	a, _ := x.connect()
	messages := 10 * x.Rounds
	var joins []func()
	for _, e := range a.both() {
		// The receiver lets the sender know of new receives, through the process, so that none is missing.
		window := min(8, e.peer.attr.MaxRecvs, e.attr.MaxSends)
		credits := make(chan struct{}, window)
		size := min(512, e.attr.MaxMessage)
		ring := x.mem(e.peer, "receives", window*size)
		region := e.peer.register(ring)
		var recvs []uint64
		for i := range window {
			recvs = append(recvs, e.peer.must(e.peer.recv(region.Segment(i*size, size))))
			credits <- struct{}{}
		}
		seed := x.seed()
		length := func(i int) int { return 1 + (i*131)%size }
		joins = append(joins, x.spawn(func() { // sender
			src := e.scratch(window * size)
			ids := make([]uint64, window)
			for i := range messages {
				select {
				case <-credits:
				case <-x.failed:
					return
				case <-time.After(x.Wait):
					x.fatalf("%s: no message has arrived for %v", e.peer.name, x.Wait)
				}
				k := i % window
				data := src.Bytes[k*size:][:length(i)]
				if i >= window && ids[k] != 0 {
					e.ok(ids[k])
				}
				noise(data, mix(seed+uint64(i)))
				if i%4 == 3 && len(data) <= e.attr.MaxInline {
					e.must(e.inline(data, nil, false))
					ids[k] = 0
				} else {
					ids[k] = e.must(e.send(provider.Segment{Bytes: data, Handle: src.Handle}, false))
				}
			}
		}), x.spawn(func() { // receiver
			to := e.peer
			for i := range messages {
				k := i % window
				if n := to.ok(recvs[k]); n != length(i) {
					x.fatalf("%s: message %d has %d bytes, it should have %d", to.name, i, n, length(i))
				}
				if !ring.want("a message of a stream", k*size, noisy(length(i), mix(seed+uint64(i)))) {
					x.giveUp()
				}
				recvs[k] = to.must(to.recv(region.Segment(k*size, size)))
				credits <- struct{}{}
			}
		}))
	}
	for _, join := range joins {
		join()
	}
}
