package session

import "sansock/provider"

// Sizes of the receive region. It begins small, so that an idle connection costs little, and grows when the peer
// says that it has more to send.
const (
	minReceives = 6                        // fewest receive buffers that a side may announce, see window.go
	minBuffer   = provider.MaxFirstMessage // smallest receive buffer: a hello fits
	minSends    = 2                        // fewest sends from a region: one is kept for control messages
	maxBuffer   = 1 << 20                  // largest

	idleReceives  = 8
	smallReceives = 8
	busyReceives  = 16
	smallBuffer   = 2<<10 + headerSize // requests and answers of many protocols are one message
	busyBuffer    = 16<<10 + headerSize
	largeBuffer   = 64<<10 + headerSize
)

// level is a size of the receive region.
type level struct{ count, size int }

// levels returns the sizes that a receive region takes on this endpoint, smallest first.
func levels(a provider.Attributes) []level {
	idle := level{min(idleReceives, max(minReceives, a.MaxRecvs/2)), minBuffer}
	small := level{min(smallReceives, a.MaxRecvs-idle.count), min(smallBuffer, a.MaxMessage)}
	l := append(make([]level, 0, 5), idle)
	if small.count < minReceives || small.size <= idle.size {
		return l
	}
	l = append(l, small)
	busy := level{min(busyReceives, a.MaxRecvs-small.count), min(busyBuffer, a.MaxMessage)}
	if busy.size < 2*small.size {
		return l
	}
	l = append(l, busy)
	// Messages of large writes, in two steps where the last is far.
	most := level{busyReceives, min(a.Buffered/busyReceives, a.MaxMessage, maxBuffer)}
	if most.size >= 2*busy.size && busyReceives <= a.MaxRecvs-busy.count {
		if most.size >= 4*largeBuffer {
			l = append(l, level{busyReceives, largeBuffer})
		}
		l = append(l, most)
	}
	return l
}

// receives is one receive region, cut into equal buffers for one message each.
type receives struct {
	region  provider.Region
	size    int
	count   int
	posted  int  // buffers posted with the provider
	held    int  // buffers whose data nobody has read yet
	retired bool // replaced by another region: buffers are not posted again
}

func (r *receives) bytes() int { return r.size * r.count }

func (r *receives) live() bool { return r.size != 0 }

// segment is buffer i.
func (r *receives) segment(i int) provider.Segment { return r.region.Segment(i*r.size, r.size) }

// A receive's context names its region (0 or 1) and its buffer.
func recvContext(gen, slot int) uint64      { return uint64(gen)<<32 | uint64(slot) }
func splitContext(c uint64) (gen, slot int) { return int(c >> 32 & 1), int(uint32(c)) }

// open allocates the region and posts every buffer.
func (r *receives) open(ep provider.Endpoint, gen int, l level) error {
	region, err := ep.Allocate(l.count * l.size)
	if err != nil {
		return err
	}
	*r = receives{region: region, size: l.size, count: l.count}
	for i := range l.count {
		p := provider.Recv{Context: recvContext(gen, i), Buffer: r.segment(i)}
		if err := ep.PostRecv(p); err != nil {
			// What is posted already stays so. Those completions, or Close, retire the region.
			r.retired = true
			return err
		}
		r.posted++
	}
	return nil
}

// release gives a retired region back once no buffer of it is in use.
func (r *receives) release(ep provider.Endpoint) {
	if r.live() && r.retired && r.posted == 0 && r.held == 0 {
		ep.Deregister(r.region.Handle)
		*r = receives{}
	}
}

// sends is the region of outgoing messages, for providers that do not take them inline.
type sends struct {
	region provider.Region
	size   int
	free   []int // slots not in the provider's hands
	count  int
	want   int // size of the slots of a region that is to replace this one once it is idle; 0: none
}

// open allocates count slots of size bytes. The old region must be idle.
func (s *sends) open(ep provider.Endpoint, count, size int) error {
	region, err := ep.Allocate(count * size)
	if err != nil {
		return err
	}
	s.close(ep)
	*s = sends{region: region, size: size, count: count, free: s.free[:0]}
	for i := range count {
		s.free = append(s.free, i)
	}
	return nil
}

func (s *sends) idle() bool { return len(s.free) == s.count }

func (s *sends) close(ep provider.Endpoint) {
	if s.count != 0 {
		ep.Deregister(s.region.Handle)
		s.count, s.size, s.free = 0, 0, s.free[:0]
	}
}
