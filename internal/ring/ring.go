// Package ring is a queue that keeps its memory.
package ring

// Ring is a first-in, first-out queue that grows by doubling. It keeps its memory, so that a queue in use does not
// allocate. The zero Ring is empty, owns no memory and is ready. A Ring has no lock of its own.
type Ring[T any] struct {
	buf     []T // its length is a power of two, or zero
	head, n uint32
}

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return int(r.n) }

// Push appends v.
func (r *Ring[T]) Push(v T) {
	if int(r.n) == len(r.buf) {
		r.grow()
	}
	r.buf[(r.head+r.n)&uint32(len(r.buf)-1)] = v
	r.n++
}

// grow is kept out of Push, which is too large to be inlined with the call of a generic method. The others are inlined.
//
//go:noinline
func (r *Ring[T]) grow() {
	buf := make([]T, max(4, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = *r.At(int(i))
	}
	r.buf, r.head = buf, 0
}

// At returns element i, counted from the oldest, which must be there. It is valid until the next Push or Pop.
func (r *Ring[T]) At(i int) *T { return &r.buf[(r.head+uint32(i))&uint32(len(r.buf)-1)] }

// Front returns the oldest element, Back the newest, as At does.
func (r *Ring[T]) Front() *T { return &r.buf[r.head&uint32(len(r.buf)-1)] }
func (r *Ring[T]) Back() *T  { return &r.buf[(r.head+r.n-1)&uint32(len(r.buf)-1)] }

// Pop removes the oldest element, which must be there, and returns it. The Ring keeps nothing that it refers to.
func (r *Ring[T]) Pop() T {
	v := *r.Front()
	r.Drop()
	return v
}

// Drop removes the oldest element, and forgets what it refers to.
func (r *Ring[T]) Drop() {
	var zero T
	r.buf[r.head&uint32(len(r.buf)-1)] = zero
	r.Skip()
}

// Skip removes the oldest element and leaves its memory as it is: for elements that refer to nothing.
func (r *Ring[T]) Skip() {
	r.head++
	r.n--
}
