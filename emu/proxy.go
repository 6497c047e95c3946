package emu

import (
	"cmp"
	"slices"
	"sync"

	"sansock/provider"
)

// Memory is what the proxy driver of the emulated device has to offer. The zero value has no
// limits.
type Memory struct {
	// MaxRegistrations and MaxRegisteredBytes bound what all endpoints of the provider register,
	// expose and allocate at a time: beyond, these fail with StatusLimit. 0: no bound.
	MaxRegistrations   int
	MaxRegisteredBytes int64

	// AddressBits is the width of the device's addresses, 0 for wide enough. The host has
	// 2^HostAddressBits bytes of memory, and an application's lie anywhere in it: a narrower device
	// reaches none of them, so that Register and Expose fail with StatusNoMemory, and only what
	// Allocate returns can be used.
	AddressBits int

	// LowMemory is how much memory Allocate has, in bytes, contiguous to begin with: it runs out,
	// and it gets fragmented, with StatusNoMemory. 0: all that the device can address.
	LowMemory int64
}

// HostAddressBits is the width of the emulated host's addresses.
const HostAddressBits = 40

// pageSize is the unit of common buffers where low memory is limited.
const pageSize = 4096

// maxCommon bounds one common buffer, as an absurd size must be an error and not end the process.
const maxCommon = 1 << 30

// extent is a piece of the device's address space.
type extent struct{ start, size int64 }

// proxy is the proxy driver: it manages memory for the device.
type proxy struct {
	limited bool // some limit is set; without one nothing is counted
	narrow  bool // the device reaches nothing but common buffers
	scarce  bool // low memory is limited
	mem     Memory

	mu    sync.Mutex // a leaf, below the lock of an endpoint
	count int
	bytes int64
	free  []extent         // free low memory, by address, never adjacent
	used  map[*byte]extent // common buffers, by their first byte
}

func newProxy(m Memory) *proxy {
	p := &proxy{
		narrow: m.AddressBits > 0 && m.AddressBits < HostAddressBits,
		mem:    m,
	}
	low := m.LowMemory
	if p.narrow {
		if reach := int64(1) << m.AddressBits; low == 0 || low > reach {
			low = reach
		}
	}
	if p.scarce = low > 0; p.scarce {
		p.used = make(map[*byte]extent)
		if low -= low % pageSize; low > 0 {
			p.free = []extent{{0, low}}
		}
	}
	p.limited = p.scarce || p.narrow || m.MaxRegistrations > 0 || m.MaxRegisteredBytes > 0
	return p
}

// allocate returns zeroed memory that the device can reach.
func (p *proxy) allocate(size int) ([]byte, error) {
	if size < 0 || size > maxCommon {
		return nil, provider.StatusNoMemory
	}
	if !p.limited {
		return make([]byte, size), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.charge(size); err != nil {
		return nil, err
	}
	// One byte at least, as the buffer is known by its first.
	b := make([]byte, max(size, 1))[:size]
	if !p.scarce {
		return b, nil
	}
	want := max((int64(size)+pageSize-1)/pageSize*pageSize, pageSize)
	for i := range p.free {
		f := &p.free[i]
		if f.size < want {
			continue
		}
		p.used[&b[:1][0]] = extent{f.start, want}
		if f.start, f.size = f.start+want, f.size-want; f.size == 0 {
			p.free = append(p.free[:i], p.free[i+1:]...)
		}
		return b, nil
	}
	p.count, p.bytes = p.count-1, p.bytes-int64(size)
	return nil, provider.StatusNoMemory
}

// register admits memory of an application.
func (p *proxy) register(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.narrow {
		return provider.StatusNoMemory
	}
	return p.charge(len(b))
}

func (p *proxy) charge(n int) error {
	if m := p.mem.MaxRegistrations; m > 0 && p.count >= m {
		return provider.StatusLimit
	}
	if m := p.mem.MaxRegisteredBytes; m > 0 && int64(n) > m-p.bytes {
		return provider.StatusLimit
	}
	p.count, p.bytes = p.count+1, p.bytes+int64(n)
	return nil
}

// release takes back what register admitted or allocate returned.
func (p *proxy) release(b []byte, common bool) {
	if !p.limited {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.bytes = p.count-1, p.bytes-int64(len(b))
	if !common || !p.scarce {
		return
	}
	first := &b[:1][0]
	x := p.used[first]
	delete(p.used, first)
	i, _ := slices.BinarySearchFunc(p.free, x.start, func(f extent, start int64) int { return cmp.Compare(f.start, start) })
	p.free = slices.Insert(p.free, i, x)
	// Join with the neighbours.
	if i+1 < len(p.free) && x.start+x.size == p.free[i+1].start {
		p.free[i].size += p.free[i+1].size
		p.free = slices.Delete(p.free, i+1, i+2)
	}
	if i > 0 && p.free[i-1].start+p.free[i-1].size == x.start {
		p.free[i-1].size += p.free[i].size
		p.free = slices.Delete(p.free, i, i+1)
	}
}
