package providertest

import (
	"runtime"
	"time"

	"sansock/provider"
)

var costRules = []rule{
	{Rule{"cost/allocations", "Operations, polling, arming and appending do not allocate. (May be waived, for example for cgo.)"},
		provesNoAllocations},
}

func provesNoAllocations(x *rig) {
	x.eachWay(func(from, to *end) {
		size := min(64, from.attr.MaxRDMA)
		recv := to.register(x.mem(to, "receive", size))
		target := to.expose(x.mem(to, "target", size), provider.RightWrite)
		src := from.scratch(size)
		app := from.appender()
		limit := time.NewTimer(x.Wait)
		defer limit.Stop()
		var buf [8]provider.Completion
		// take polls e until n completions have come.
		take := func(e *end, n int) {
			for n > 0 {
				got := e.ep.Poll(buf[:])
				for _, c := range buf[:got] {
					if c.Status != provider.StatusOK {
						x.fatalf("%s: %s", e.name, describe(c))
					}
				}
				if n -= got; n <= 0 || got > 0 || e.ep.Arm(provider.WakeAny) {
					continue
				}
				select {
				case <-e.token:
				case <-limit.C:
					x.fatalf("%s: no completion in %v", e.name, x.Wait)
				}
			}
		}
		round := func() {
			must := func(err error) {
				if err != nil {
					x.fatalf("posting: %v", err)
				}
			}
			for range 2 {
				must(to.ep.PostRecv(provider.Recv{Context: 1, Buffer: whole(recv)}))
				must(from.ep.PostSend(provider.Send{Context: 2, Local: src, Solicited: true}))
				take(from, 1)
				take(to, 1)
				must(from.ep.PostWrite(provider.RDMA{Context: 3, Local: src, Remote: target.Descriptor}))
				take(from, 1)
				if from.attr.MaxInline < size {
					break
				}
				must(to.ep.PostRecv(provider.Recv{Context: 1, Buffer: whole(recv)}))
				must(from.ep.PostSend(provider.Send{Context: 4, Inline: [2][]byte{src.Bytes[:8], src.Bytes[8:]}}))
				take(to, 1)
				if app != nil {
					must(to.ep.PostRecv(provider.Recv{Context: 1, Buffer: whole(recv)}))
					must(from.ep.PostSend(provider.Send{Context: 5, Inline: [2][]byte{src.Bytes[:8]}, Open: true}))
					app.Append(src.Bytes[8:16])
					app.Unread(true)
					take(to, 1)
					app.Unread(false)
				}
			}
		}
		rounds := uint64(max(20, min(100, x.Rounds)))
		least := ^uint64(0)
		// The runtime allocates now and then, and so may other goroutines: the best of some tries counts.
		for range 5 {
			var before, after runtime.MemStats
			round() // queues have grown now
			runtime.ReadMemStats(&before)
			for range rounds {
				round()
			}
			runtime.ReadMemStats(&after)
			least = min(least, after.Mallocs-before.Mallocs)
			limit.Reset(x.Wait)
		}
		if least >= rounds {
			x.errorf("%d allocations in %d rounds of messages and writes", least, rounds)
		}
	})
}
