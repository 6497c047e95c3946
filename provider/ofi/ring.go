//go:build ofi && cgo && linux

package ofi

// ring is a queue that grows by doubling and never shrinks.
type ring[T any] struct {
	buf     []T // length is a power of two, or zero
	head, n uint32
}

func (r *ring[T]) push(v T) {
	if int(r.n) == len(r.buf) {
		buf := make([]T, max(8, 2*len(r.buf)))
		for i := range r.n {
			buf[i] = r.buf[(r.head+i)&uint32(len(r.buf)-1)]
		}
		r.buf, r.head = buf, 0
	}
	r.buf[(r.head+r.n)&uint32(len(r.buf)-1)] = v
	r.n++
}

// pop removes the oldest element. The ring must not be empty.
func (r *ring[T]) pop() T {
	p := &r.buf[r.head&uint32(len(r.buf)-1)]
	v := *p
	var zero T
	*p = zero
	r.head++
	r.n--
	return v
}
