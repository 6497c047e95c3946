package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// What a person can take in.
const (
	maxFields  = 20  // of a struct; blank ones, which pad, are none
	maxLines   = 60  // of a function, from func to the last brace
	maxFile    = 400 // lines
	maxColumns = 100 // of a comment; a tab takes 4
)

// size is how large something is.
type size struct {
	what string // struct Conn, func (*Conn).Close, file
	at   string // file:line
	n    int
	unit string
	max  int
}

func (s size) String() string { return fmt.Sprintf("%s: %s has %d %s", s.at, s.what, s.n, s.unit) }

// sizes are those of a package, the largest of each kind first.
type sizes struct {
	structs, funcs, files []size
	wide                  int // comment lines
}

func sizesOf(p *pkg) *sizes {
	s := &sizes{}
	for _, name := range p.sorted() {
		s.files = append(s.files, size{"the file", name, len(p.lines[name]), "lines", maxFile})
		s.measure(p, p.files[name])
		s.comments(p, name)
	}
	for _, kind := range [][]size{s.structs, s.funcs, s.files} {
		slices.SortStableFunc(kind, func(a, b size) int { return cmp.Compare(b.n, a.n) })
	}
	return s
}

// measure finds the structs and functions of a file. A function within another is a part of it.
func (s *sizes) measure(p *pkg, f *ast.File) {
	at := func(n ast.Node) string { return fmt.Sprintf("%s:%d", p.file(n.Pos()), p.line(n.Pos())) }
	function := func(n ast.Node, what string) {
		s.funcs = append(s.funcs, size{what, at(n), p.line(n.End()) - p.line(n.Pos()) + 1, "lines", maxLines})
	}
	var names []string // of the types that are being declared
	var visit func(n ast.Node, inside bool)
	visit = func(n ast.Node, inside bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				function(n, "func "+funcName(n))
				if n.Body != nil {
					visit(n.Body, true)
				}
				return false
			case *ast.FuncLit:
				if !inside {
					function(n, "a func without a name")
				}
			case *ast.TypeSpec:
				names = append(names, n.Name.Name)
				visit(n.Type, inside)
				names = names[:len(names)-1]
				return false
			case *ast.StructType:
				what := "a struct without a name"
				if len(names) > 0 {
					what = "struct " + names[len(names)-1]
				}
				s.structs = append(s.structs, size{what, at(n), fields(n), "fields", maxFields})
			}
			return true
		})
	}
	visit(f, false)
}

// fields counts the fields that have a name, or are embedded.
func fields(t *ast.StructType) (n int) {
	for _, f := range t.Fields.List {
		if len(f.Names) == 0 {
			n++
		}
		for _, name := range f.Names {
			if name.Name != "_" {
				n++
			}
		}
	}
	return n
}

// funcName is the name of a function, with its receiver's type.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t, star := d.Recv.List[0].Type, ""
	if x, ok := t.(*ast.StarExpr); ok {
		t, star = x.X, "*"
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	return fmt.Sprintf("(%s%s).%s", star, t.(*ast.Ident).Name, d.Name.Name)
}

// comments counts the lines that are too wide and have a comment.
func (s *sizes) comments(p *pkg, name string) {
	commented := make(map[int]bool)
	for _, group := range p.files[name].Comments {
		for _, c := range group.List {
			for i := p.line(c.Pos()); i <= p.line(c.End()); i++ {
				commented[i] = true
			}
		}
	}
	for i, line := range p.lines[name] {
		if commented[i+1] && utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > maxColumns {
			s.wide++
		}
	}
}

func (s *sizes) all() []size { return slices.Concat(s.structs, s.funcs, s.files) }

// problems returns what is too large.
func (s *sizes) problems() (found []string) {
	for _, x := range s.all() {
		if x.n > x.max {
			found = append(found, fmt.Sprintf("%v, more than %d", x, x.max))
		}
	}
	return found
}

// most is how many of each kind are printed.
const most = 5

func (s *sizes) print(out io.Writer) {
	lines := 0
	for _, f := range s.files {
		lines += f.n
	}
	fmt.Fprintf(out, "  %d lines in %d files, %d functions, %d structs; %d comment lines of more than %d columns\n",
		lines, len(s.files), len(s.funcs), len(s.structs), s.wide, maxColumns)
	for _, kind := range [][]size{s.structs, s.funcs, s.files} {
		for _, x := range kind[:min(most, len(kind))] {
			fmt.Fprintf(out, "  %v\n", x)
		}
	}
}
