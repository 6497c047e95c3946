package sannet

import (
	"reflect"
	"unsafe"
)

// valueOf returns the value of a field, or of its address, exported or not.
func valueOf(v reflect.Value) any {
	if v.CanAddr() {
		return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem().Interface()
	}
	return reflect.NewAt(v.Type().Elem(), v.UnsafePointer()).Interface()
}
