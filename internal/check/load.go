package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is a package without its tests.
type pkg struct {
	name  string // path below the module
	files map[string]*ast.File
	fset  *token.FileSet
	info  *types.Info
	types *types.Package
	lines map[string][]string // of each file
}

// sorted returns the names of the files.
func (p *pkg) sorted() []string { return slices.Sorted(maps.Keys(p.files)) }

// line returns the line of a position.
func (p *pkg) line(at token.Pos) int { return p.fset.Position(at).Line }

// file returns the name of the file of a position.
func (p *pkg) file(at token.Pos) string { return filepath.Base(p.fset.Position(at).Filename) }

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export           string
	DepOnly                           bool
	GoFiles, CgoFiles, IgnoredGoFiles []string
	Module                            *struct{ Path string }
}

// load reads the packages, and has the go command compile what they import.
func load(tags string, patterns []string) ([]*pkg, error) {
	args := []string{"list", "-export", "-deps", "-tags", tags,
		"-json=ImportPath,Dir,Export,DepOnly,GoFiles,CgoFiles,IgnoredGoFiles,Module"}
	cmd := exec.Command("go", append(append(args, "--"), patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var wanted []listed
	compiled := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		compiled[l.ImportPath] = l.Export
		if !l.DepOnly {
			wanted = append(wanted, l)
		}
	}
	var packages []*pkg
	for _, l := range wanted {
		p, err := read(l, compiled)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// read parses all files of a package, and looks up the names in those that are built here.
func read(l listed, compiled map[string]string) (*pkg, error) {
	p := &pkg{name: l.ImportPath, files: make(map[string]*ast.File), fset: token.NewFileSet(), lines: make(map[string][]string)}
	if l.Module != nil {
		p.name = strings.TrimPrefix(l.ImportPath, l.Module.Path+"/")
	}
	var built []*ast.File
	here := slices.Concat(l.GoFiles, l.CgoFiles)
	for _, name := range slices.Concat(here, l.IgnoredGoFiles) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(p.fset, filepath.Join(l.Dir, name), text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.files[name] = f
		p.lines[name] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if slices.Contains(here, name) {
			built = append(built, f)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc", open), FakeImportC: true}
	p.info = &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	var err error
	p.types, err = conf.Check(l.ImportPath, p.fset, built, p.info)
	return p, err
}
