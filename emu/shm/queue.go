//go:build linux

package shm

// queue is first in, first out, and grows by doubling. Its zero value is empty and owns no memory.
type queue[T any] struct {
	buf     []T // length is a power of two, or zero
	head, n uint32
}

func (q *queue[T]) push(v T) {
	if int(q.n) == len(q.buf) {
		q.grow()
	}
	q.buf[(q.head+q.n)&uint32(len(q.buf)-1)] = v
	q.n++
}

// front is the oldest element. The queue must not be empty.
func (q *queue[T]) front() *T { return &q.buf[q.head&uint32(len(q.buf)-1)] }

// at is element i, counted from the oldest.
func (q *queue[T]) at(i uint32) *T { return &q.buf[(q.head+i)&uint32(len(q.buf)-1)] }

// drop removes the oldest element.
func (q *queue[T]) drop() {
	var zero T
	*q.front() = zero
	q.head++
	q.n--
}

//go:noinline
func (q *queue[T]) grow() {
	buf := make([]T, max(4, 2*len(q.buf)))
	for i := range q.n {
		buf[i] = q.buf[(q.head+i)&uint32(len(q.buf)-1)]
	}
	q.buf, q.head = buf, 0
}
