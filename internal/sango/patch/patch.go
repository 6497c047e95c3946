// Package patch changes package net of the standard library so that its TCP connections and
// listeners can be those of package san. It inserts into the files, by their syntax tree, on
// lines that are there, so that positions stay what they were. What the inserted code, and the
// file that is added, rely on is checked first.
package patch

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// MismatchError tells what a release has otherwise.
type MismatchError struct{ Point, Want, Got string }

func (e *MismatchError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("package net has no %s, as the patch needs it (%s)", e.Point, e.Want)
	}
	return fmt.Sprintf("package net: %s is %s, the patch needs %s", e.Point, e.Got, e.Want)
}

// Net is the patched part of package net.
type Net struct {
	fset    *token.FileSet
	files   map[string]*file
	funcs   map[string]*function
	structs map[string]*structure
	names   map[string]bool // of what else is declared
}

// file is a file, and what is to be inserted in it.
type file struct {
	text  []byte
	tree  *ast.File
	edits []edit
}

type edit struct {
	at, end int // offsets
	text    string
}

type function struct {
	file *file
	decl *ast.FuncDecl
}

type structure struct {
	file *file
	tree *ast.StructType
}

// Files returns the files of dir, which is net's, that are compiled for the system, by name. read
// reads a file.
func Files(dir, goos, goarch string, names []string, read func(path string) ([]byte, error)) (
	map[string][]byte, error) {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = goos, goarch, true
	files := make(map[string][]byte)
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := read(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		one := ctx
		one.OpenFile = opener(text)
		if ok, err := one.MatchFile(dir, name); err != nil {
			return nil, err
		} else if ok {
			files[name] = text
		}
	}
	return files, nil
}

// Apply returns those of the files that change, changed.
func Apply(files map[string][]byte) (map[string][]byte, error) {
	n, err := parse(files)
	if err != nil {
		return nil, err
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	n.insert()
	changed := make(map[string][]byte)
	for name, f := range n.files {
		if len(f.edits) > 0 {
			changed[name] = f.apply()
		}
	}
	return changed, nil
}

func parse(files map[string][]byte) (*Net, error) {
	n := &Net{fset: token.NewFileSet(), files: make(map[string]*file),
		funcs: make(map[string]*function), structs: make(map[string]*structure), names: make(map[string]bool)}
	for name, text := range files {
		tree, err := parser.ParseFile(n.fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		f := &file{text: text, tree: tree}
		n.files[name] = f
		for _, d := range tree.Decls {
			n.declare(f, d)
		}
	}
	return n, nil
}

func (n *Net) declare(f *file, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if name := nameOf(d); name != "init" {
			n.funcs[name] = &function{f, d}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				n.names[s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					n.structs[s.Name.Name] = &structure{f, st}
				}
			case *ast.ValueSpec:
				for _, i := range s.Names {
					n.names[i.Name] = true
				}
			}
		}
	}
}

// nameOf is the name of a function, or (*T).name of a method.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := typeText(d.Recv.List[0].Type)
	if strings.HasPrefix(t, "*") {
		t = "(" + t + ")"
	}
	return t + "." + d.Name.Name
}

// offset is that of a position in its file.
func (n *Net) offset(p token.Pos) int { return n.fset.Position(p).Offset }

func (f *file) apply() []byte {
	slices.SortStableFunc(f.edits, func(a, b edit) int { return a.at - b.at })
	var out []byte
	last := 0
	for _, e := range f.edits {
		out = append(append(out, f.text[last:e.at]...), e.text...)
		last = e.end
	}
	return append(out, f.text[last:]...)
}

// insert makes the edits of all points.
func (n *Net) insert() {
	for _, p := range prologues {
		fn := n.funcs[p.name]
		at := n.offset(fn.decl.Body.Lbrace) + 1
		fn.file.edits = append(fn.file.edits, edit{at, at, " " + p.expand(fn.decl) + ";"})
	}
	for _, name := range renames {
		fn := n.funcs[name]
		at := n.offset(fn.decl.Name.End())
		fn.file.edits = append(fn.file.edits, edit{at, at, "Plain"})
	}
	fd := n.structs["netFD"]
	at := n.offset(fd.tree.Fields.Opening) + 1
	fd.file.edits = append(fd.file.edits, edit{at, at, " sango *sangoFD;"})
}

// expand puts the names of the declaration in the place of $0, the receiver, and $1, $2.. , the
// parameters.
func (p prologue) expand(d *ast.FuncDecl) string {
	names := []string{""}
	if d.Recv != nil {
		names[0] = d.Recv.List[0].Names[0].Name
	}
	for _, f := range d.Type.Params.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
	}
	text := p.text
	for i, name := range names {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), name)
	}
	return text
}
