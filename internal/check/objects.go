package main

import "go/types"

// declares returns the file in which the package declares object, if that is a name of the package, a
// field or a method, and none of an instance.
func (p *pkg) declares(object types.Object) (file string, ok bool) {
	if object.Pkg() != p.types || !object.Pos().IsValid() {
		return "", false
	}
	switch o := object.(type) {
	case *types.Var:
		ok = o.IsField() || o.Parent() == p.types.Scope()
	case *types.Func:
		ok = true
	default:
		ok = o.Parent() == p.types.Scope()
	}
	return p.file(object.Pos()), ok
}

// origin is the field or method of the generic type where object is of an instance.
func origin(object types.Object) types.Object {
	switch o := object.(type) {
	case *types.Var:
		return o.Origin()
	case *types.Func:
		return o.Origin()
	}
	return object
}

// qualified is the name of an object, with the receiver's type if it is a method.
func qualified(object types.Object) string {
	f, ok := object.(*types.Func)
	if !ok {
		return object.Name()
	}
	recv := f.Signature().Recv()
	if recv == nil {
		return f.Name()
	}
	t := recv.Type()
	if ptr, ok := t.(*types.Pointer); ok {
		t = ptr.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name() + "." + f.Name()
	}
	return f.Name()
}
