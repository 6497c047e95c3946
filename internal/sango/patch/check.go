package patch

import (
	"bytes"
	"go/ast"
	"go/printer"
	"go/token"
	"io"
	"slices"
	"strings"
)

func opener(text []byte) func(string) (io.ReadCloser, error) {
	return func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
}

// typeText is a type as it is written, in one line.
func typeText(e ast.Node) string {
	var b strings.Builder
	printer.Fprint(&b, token.NewFileSet(), e)
	return strings.Join(strings.Fields(b.String()), " ")
}

// signature is the type of a function without names.
func signature(t *ast.FuncType) string {
	s := "func(" + fields(t.Params) + ")"
	if r := fields(t.Results); strings.Contains(r, ",") {
		s += " (" + r + ")"
	} else if r != "" {
		s += " " + r
	}
	return s
}

func fields(l *ast.FieldList) string {
	if l == nil {
		return ""
	}
	var types []string
	for _, f := range l.List {
		for range max(len(f.Names), 1) {
			types = append(types, bare(f.Type))
		}
	}
	return strings.Join(types, ", ")
}

// bare is a type, of which functions have no names of parameters.
func bare(e ast.Expr) string {
	if f, ok := e.(*ast.FuncType); ok {
		return signature(f)
	}
	return typeText(e)
}

// check makes sure that everything is as points.go says.
func (n *Net) check() error {
	for _, p := range prologues {
		if err := n.checkFunc(p.name, p.signature); err != nil {
			return err
		}
		d := n.funcs[p.name].decl
		for _, f := range append(slices.Clone(d.Type.Params.List), receiver(d)...) {
			if len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(i *ast.Ident) bool { return i.Name == "_" }) {
				return &MismatchError{p.name, "with names for its parameters", "without"}
			}
		}
	}
	for name, want := range uses {
		if err := n.checkFunc(name, want); err != nil {
			return err
		}
	}
	for name, want := range fieldsUsed {
		if err := n.checkStruct(name, want); err != nil {
			return err
		}
	}
	for _, name := range declared {
		if !n.names[name] {
			return &MismatchError{Point: name, Want: "a constant, variable or type"}
		}
	}
	return n.checkSockets()
}

func receiver(d *ast.FuncDecl) []*ast.Field {
	if d.Recv == nil {
		return nil
	}
	return d.Recv.List
}

func (n *Net) checkFunc(name, want string) error {
	fn := n.funcs[name]
	if fn == nil {
		return &MismatchError{Point: "function " + name, Want: want}
	}
	if got := signature(fn.decl.Type); got != want {
		return &MismatchError{name, want, got}
	}
	return nil
}

func (n *Net) checkStruct(name string, want []string) error {
	st := n.structs[name]
	if st == nil {
		return &MismatchError{Point: "struct " + name, Want: strings.Join(want, "; ")}
	}
	var got []string
	for _, f := range st.tree.Fields.List {
		for _, i := range f.Names {
			got = append(got, i.Name+" "+bare(f.Type))
		}
		if len(f.Names) == 0 {
			got = append(got, bare(f.Type))
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			return &MismatchError{"struct " + name, "a field " + w, "{" + strings.Join(got, "; ") + "}"}
		}
	}
	return nil
}

// checkSockets finds functions that get at the socket of a netFD, and of which the patch does not
// know that they may, and literals of netFD that a new field would break.
func (n *Net) checkSockets() (err error) {
	for name, fn := range n.funcs {
		if fn.decl.Body == nil {
			continue
		}
		ast.Inspect(fn.decl.Body, func(x ast.Node) bool {
			switch x := x.(type) {
			case *ast.SelectorExpr:
				if x.Sel.Name == "pfd" && !slices.Contains(sockets, name) {
					err = &MismatchError{name, "no other functions there than it knows", "one that uses a socket"}
				}
			case *ast.CompositeLit:
				if i, ok := x.Type.(*ast.Ident); ok && i.Name == "netFD" && len(x.Elts) > 0 {
					if _, ok := x.Elts[0].(*ast.KeyValueExpr); !ok {
						err = &MismatchError{name, "names of fields", "a literal of netFD without"}
					}
				}
			}
			return true
		})
	}
	return err
}
