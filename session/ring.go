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
		r.grow()
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = v
	r.n++
}

// grow is kept out of push so that the compiler inlines that.
//
//go:noinline
func (r *ring[T]) grow() {
	buf := make([]T, max(4, 2*len(r.buf)))
	k := copy(buf, r.buf[r.head:])
	copy(buf[k:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}

func (r *ring[T]) pop() T {
	v := *r.front()
	r.drop()
	return v
}

// drop removes the oldest element, and what it refers to.
func (r *ring[T]) drop() {
	var zero T
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}
