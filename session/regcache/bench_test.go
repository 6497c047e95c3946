package regcache

import (
	"runtime"
	"testing"
)

func BenchmarkHit(b *testing.B) {
	c := New(newNIC(nil), ample)
	defer c.Close()
	m := make([]byte, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		h, _ := c.Get(m)
		c.Put(h)
	}
	runtime.KeepAlive(m)
}

// BenchmarkMiss is what the cache costs where it never helps, apart from the provider.
func BenchmarkMiss(b *testing.B) {
	c := New(newNIC(nil), Limits{Entries: 64, Bytes: 64 << 20})
	defer c.Close()
	var m [128][]byte
	for i := range m {
		m[i] = make([]byte, 4096)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h, _ := c.Get(m[i%len(m)])
		c.Put(h)
	}
	runtime.KeepAlive(&m)
}
