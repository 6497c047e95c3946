package session

// ring is a queue that keeps its memory. The zero ring is empty and ready.
type ring[T any] struct {
	buf  []T // length is a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// front returns the oldest element, valid until the next push or pop.
func (r *ring[T]) front() *T { return &r.buf[r.head] }

// back returns the newest element, likewise.
func (r *ring[T]) back() *T { return &r.buf[(r.head+r.n-1)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		buf := make([]T, max(4, 2*len(r.buf)))
		k := copy(buf, r.buf[r.head:])
		copy(buf[k:], r.buf[:r.head])
		r.buf, r.head = buf, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = v
	r.n++
}

func (r *ring[T]) pop() T {
	var zero T
	v := r.buf[r.head]
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}
