package remote

import "unsafe"

// within reports whether inner lies in outer, and where: slices say which memory they are by nothing else.
func within(outer, inner []byte) (off int, ok bool) {
	// Below outer the difference wraps round and is larger than any length.
	d := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if d > uintptr(len(outer)) || len(inner) > len(outer)-int(d) {
		return 0, false
	}
	return int(d), true
}
