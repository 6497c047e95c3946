package session

import "sansock/provider"

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
