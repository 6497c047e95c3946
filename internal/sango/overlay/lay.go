package overlay

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// lay lays a package of the library, and what it needs, into the standard library.
func (m *maker) lay(dir string) error {
	return m.layFrom(path.Join(m.Source.Library.Path, dir), filepath.Join(m.Source.Library.Dir, dir))
}

// layFrom lays the package that is in dir.
func (m *maker) layFrom(pkg, dir string) error {
	if m.done[pkg] {
		return nil
	}
	m.done[pkg] = true
	to := m.place(pkg)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || m.instead(to, name) {
			continue
		}
		if !m.matches(dir, name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		f, err := m.adapt(name, text)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		m.content[path.Join(to, name)] = f.text
		for _, i := range f.imports {
			if err := m.follow(i); err != nil {
				return err
			}
		}
	}
	if to == path.Join(Base, "emu/shm") {
		return m.add(to, "_std/shm")
	}
	return nil
}

// instead tells that what is in a file of the library comes from here.
func (m *maker) instead(to, name string) bool {
	return to == path.Join(Base, "emu/shm") && strings.HasPrefix(name, "pause_")
}

// matches reports whether a file may be built for the system.
func (m *maker) matches(dir, name string) bool {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = m.GOOS, m.GOARCH, false
	for _, tags := range [][]string{{"purego"}, {"purego", "race", "msan", "asan"}} {
		ctx.BuildTags = tags
		if ok, err := ctx.MatchFile(dir, name); ok || err != nil {
			return true
		}
	}
	return false
}

// follow lays a package that is imported.
func (m *maker) follow(pkg string) error {
	if rest, ok := strings.CutPrefix(pkg, m.Source.Library.Path+"/"); ok {
		return m.lay(rest)
	}
	if pkg == "net" {
		return m.add(path.Join(Base, "net"), "_std/net")
	}
	if needs[pkg] == "" {
		return nil
	}
	for _, mod := range m.Source.Needs {
		if rest, ok := strings.CutPrefix(pkg, mod.Path); ok {
			return m.layFrom(pkg, filepath.Join(mod.Dir, filepath.FromSlash(rest)))
		}
	}
	return fmt.Errorf("no sources of %s", pkg)
}

// adapted is a file as it is laid.
type adapted struct {
	text    []byte
	imports []string // what else has to be laid
}

// adapt changes what a file imports, what it is built for, and gives functions that are in
// assembly a body. It returns nil for files that are not part of this.
func (m *maker) adapt(name string, text []byte) (*adapted, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	a := &adapted{}
	var edits []edit
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	if line := buildLine(tree); line != nil {
		expr, err := constraint.Parse(line.Text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rest, value := fix(expr)
		switch {
		case rest == nil && !value:
			return nil, nil
		case rest == nil:
			edits = append(edits, edit{offset(line.Pos()), offset(line.End()), "//"})
		default:
			edits = append(edits, edit{offset(line.Pos()), offset(line.End()), "//go:build " + rest.String()})
		}
	}
	for _, i := range tree.Imports {
		pkg, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		if to := m.place(pkg); to != "" {
			edits = append(edits, edit{offset(i.Path.Pos()), offset(i.Path.End()), strconv.Quote(to)})
			a.imports = append(a.imports, pkg)
		}
	}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body == nil && !linknamed(tree, fn.Name.Name) {
			body, ok := asm[fn.Name.Name]
			if !ok {
				return nil, fmt.Errorf("%s: the assembly of %s is not known", name, fn.Name.Name)
			}
			edits = append(edits, edit{offset(fn.End()), offset(fn.End()), " " + body})
			for _, c := range directives(fn) {
				edits = append(edits, edit{offset(c.Pos()), offset(c.End()), "//"})
			}
		}
	}
	a.text = apply(text, edits)
	return a, nil
}

type edit struct {
	at, end int
	text    string
}

func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.at - b.at })
	var out []byte
	last := 0
	for _, e := range edits {
		out = append(append(out, text[last:e.at]...), e.text...)
		last = e.end
	}
	return append(out, text[last:]...)
}

// buildLine is the comment that says what a file is built for.
func buildLine(f *ast.File) *ast.Comment {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() < f.Package && constraint.IsGoBuild(c.Text) {
				return c
			}
		}
	}
	return nil
}

func linknamed(f *ast.File, fn string) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if rest, ok := strings.CutPrefix(c.Text, "//go:linkname "); ok && strings.HasPrefix(rest, fn+" ") {
				return true
			}
		}
	}
	return false
}

// fixed are the tags of which it is known here whether they hold: others are up to the go command.
var fixed = map[string]bool{"ofi": false, "cgo": false, "purego": true, "ignore": false}

// fix evaluates what is known of an expression: nil and a value, or what is left of it.
func fix(x constraint.Expr) (rest constraint.Expr, value bool) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		if v, ok := fixed[x.Tag]; ok {
			return nil, v
		}
	case *constraint.NotExpr:
		if rest, value := fix(x.X); rest == nil {
			return nil, !value
		} else {
			return &constraint.NotExpr{X: rest}, false
		}
	case *constraint.AndExpr:
		and := func(a, b constraint.Expr) constraint.Expr { return &constraint.AndExpr{X: a, Y: b} }
		return join(x.X, x.Y, false, and)
	case *constraint.OrExpr:
		or := func(a, b constraint.Expr) constraint.Expr { return &constraint.OrExpr{X: a, Y: b} }
		return join(x.X, x.Y, true, or)
	}
	return x, false
}

// join is fix of an operator, of which one operand with the value decides.
func join(x, y constraint.Expr, decides bool, op func(a, b constraint.Expr) constraint.Expr) (
	constraint.Expr, bool) {
	a, av := fix(x)
	b, bv := fix(y)
	switch {
	case a == nil && av == decides, b == nil && bv == decides:
		return nil, decides
	case a == nil && b == nil:
		return nil, !decides
	case a == nil:
		return b, false
	case b == nil:
		return a, false
	}
	return op(a, b), false
}

// directives are those that only a function without a body may have.
func directives(fn *ast.FuncDecl) (found []*ast.Comment) {
	if fn.Doc != nil {
		for _, c := range fn.Doc.List {
			if c.Text == "//go:noescape" {
				found = append(found, c)
			}
		}
	}
	return found
}

// asm is what x/sys/unix has in assembly: jumps to package syscall.
var asm = map[string]string{
	"Syscall":           "{ return syscall.Syscall(trap, a1, a2, a3) }",
	"Syscall6":          "{ return syscall.Syscall6(trap, a1, a2, a3, a4, a5, a6) }",
	"RawSyscall":        "{ return syscall.RawSyscall(trap, a1, a2, a3) }",
	"RawSyscall6":       "{ return syscall.RawSyscall6(trap, a1, a2, a3, a4, a5, a6) }",
	"SyscallNoError":    "{ r1, r2, _ = Syscall(trap, a1, a2, a3); return }",
	"RawSyscallNoError": "{ r1, r2, _ = RawSyscall(trap, a1, a2, a3); return }",
	"gettimeofday":      "{ return syscall.ENOSYS }", // for Time, which the library does not use
}
