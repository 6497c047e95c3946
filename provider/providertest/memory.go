package providertest

import (
	"bytes"
	"sync"

	"sansock/provider"
)

// margin is the number of guard bytes before and behind the memory of a rule.
const margin = 192

// mem is memory of an application, with random content and guard bytes on both sides that nobody may change.
type mem struct {
	b []byte // what may be registered; its capacity reaches into the guard

	x      *rig
	name   string
	all    []byte
	before []byte // the guards as they were
	behind []byte

	mu     sync.Mutex
	frozen []byte // b as it has to stay; nil: as it likes
}

// mem returns n bytes of memory of the process that e is in.
func (x *rig) mem(e *end, name string, n int) *mem {
	all := x.Memory(e.prov, n+2*margin)
	for _, part := range [][]byte{all[:margin], all[margin : margin+n], all[margin+n:]} {
		noise(part, x.seed()) // the guards are no repetition of what may be read
	}
	m := &mem{
		b: all[margin : margin+n], x: x, name: name, all: all,
		before: bytes.Clone(all[:margin]), behind: bytes.Clone(all[margin+n:]),
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.memory = append(x.memory, m)
	return m
}

// freeze says that from now on nobody changes m.
func (m *mem) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = bytes.Clone(m.b)
}

// thaw takes freeze back.
func (m *mem) thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = nil
}

// check looks whether something has changed that must not.
func (m *mem) check(when string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := differ(m.all[:margin], m.before); i >= 0 {
		m.x.errorf("%s: the byte %d before the %s has changed", when, margin-i, m.name)
		copy(m.before, m.all)
	}
	if i := differ(m.all[margin+len(m.b):], m.behind); i >= 0 {
		m.x.errorf("%s: the byte %d behind the %s has changed", when, i, m.name)
		copy(m.behind, m.all[margin+len(m.b):])
	}
	if m.frozen == nil {
		return
	}
	if i := differ(m.b, m.frozen); i >= 0 {
		m.x.errorf("%s: byte %d of the %s (%d bytes) has changed", when, i, m.name, len(m.b))
		copy(m.frozen, m.b)
	}
}

// want compares part of the memory with what should be there.
func (m *mem) want(what string, off int, data []byte) bool {
	if i := differ(m.b[off:off+len(data)], data); i >= 0 {
		m.x.errorf("%s: byte %d of %d in the %s (at %d) is wrong", what, i, len(data), m.name, off)
		return false
	}
	return true
}

// leaked reports whether b has some of the content of m, or of its guards. As m is random, a few bytes of it are proof:
// any 16 in a row in small memory, in large memory one of some samples.
func (m *mem) leaked(b []byte) bool {
	for i := 0; i+8 <= len(m.all); i += max(8, len(m.all)/512) {
		if bytes.Contains(b, m.all[i:i+8]) {
			return true
		}
	}
	return false
}

// period is the length after which noise repeats itself: no multiple of anything that an address could be wrong by.
const period = 4099

// noise fills b with random bytes that depend on the seed alone.
func noise(b []byte, seed uint64) {
	n := min(len(b), period)
	for i := 0; i < n; i += 8 {
		seed += golden
		z := mix(seed)
		for k := i; k < min(i+8, n); k++ {
			b[k] = byte(z)
			z >>= 8
		}
	}
	for n > 0 && n < len(b) {
		n += copy(b[n:], b[:n])
	}
}

// golden and mix are those of splitmix64.
const golden = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// seed is one that was not used before in this rule, and hardly so in another.
func (x *rig) seed() uint64 { return mix(x.seeds.Add(1)) }

// noisy returns n such bytes.
func noisy(n int, seed uint64) []byte {
	b := make([]byte, n)
	noise(b, seed)
	return b
}

// differ is the index of the first byte that is not the same, -1 if there is none. A different length differs at the end.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// whole is all of a region as a segment.
func whole(r provider.Region) provider.Segment { return r.Segment(0, len(r.Bytes)) }
