package emu

// ring is a queue that grows by doubling and never shrinks by itself. Its zero value is empty and owns no memory.
type ring[T any] struct {
	buf     []T // length is a power of two, or zero
	head, n uint32
}

func (r *ring[T]) push(v T) {
	if int(r.n) == len(r.buf) {
		r.grow()
	}
	r.buf[(r.head+r.n)&uint32(len(r.buf)-1)] = v
	r.n++
}

// front is the oldest element. The ring must not be empty.
func (r *ring[T]) front() *T { return &r.buf[r.head&uint32(len(r.buf)-1)] }

// at is element i, counted from the oldest.
func (r *ring[T]) at(i uint32) *T { return &r.buf[(r.head+i)&uint32(len(r.buf)-1)] }

// back is the newest element. The ring must not be empty.
func (r *ring[T]) back() *T { return r.at(r.n - 1) }

// drop removes the oldest element.
func (r *ring[T]) drop() {
	r.head++
	r.n--
}

// grow is kept out of push so that the compiler inlines that.
//
//go:noinline
func (r *ring[T]) grow() {
	buf := make([]T, max(4, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
