package regtable

import "unsafe"

// within reports whether inner lies in outer, and where. The device needs it because a segment says which bytes it
// means by a slice, and whether a slice is part of another is beyond the safe language.
func within(outer, inner []byte) (off int, ok bool) {
	if len(inner) == 0 {
		return 0, true
	}
	// Below outer the difference wraps round and is larger than any length.
	d := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if d > uintptr(len(outer)) || len(inner) > len(outer)-int(d) {
		return 0, false
	}
	return int(d), true
}
