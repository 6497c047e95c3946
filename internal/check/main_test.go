package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inModule makes a module of the files, and goes there.
func inModule(t *testing.T, files map[string]string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/m\n\ngo 1.26.0\n"), 0o666))
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	t.Chdir(dir)
}

// checked runs the program, and returns what it prints in lines.
func checked(t *testing.T, args ...string) ([]string, error) {
	var out bytes.Buffer
	err := run(args, &out)
	if out.Len() == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
}

// fieldList is n fields in as few lines as possible.
func fieldList(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("f%d", i)
	}
	return strings.Join(names, ", ") + " int"
}

// function is one of n lines.
func function(head string, n int) string {
	return head + " {\n" + strings.Repeat("\tprintln()\n", n-2) + "}"
}

// TestSizes: what has the limit's size is right, what has one more is not.
func TestSizes(t *testing.T) {
	inModule(t, map[string]string{
		"good/good.go": "package good\n\ntype T struct { " + fieldList(19) + "; error; _, _ int }\n\n" +
			"type U struct { " + fieldList(19) + "; in struct { " + fieldList(20) + " } }\n\n" +
			function("func f()", 60) + "\n",
		"good/long.go": "package good\n" + strings.Repeat("\n", 398) + "var _ = 0\n",
		"good/good_test.go": "package good\n\ntype V struct { " + fieldList(21) + " }\n" +
			strings.Repeat("\n", 400),
		"bad/bad.go": "package bad\n\ntype T struct { " + fieldList(20) + "; error }\n\n" +
			"func (t *T) m() {\n\ttype L struct { " + fieldList(21) + " }\n}\n\n" +
			function("func (T) f()", 61) + "\n\n" + function("var v = func()", 61) + "\n",
		"bad/generic.go": "package bad\n\ntype G[K, V any] struct { k K; v V }\n\n" + function("func (G[K, V]) f()", 61) + "\n",
		"bad/elsewhere.go": "//go:build !" + "linux && !darwin && !windows\n\npackage bad\n" +
			strings.Repeat("\n", 397) + "var _ = 0\n",
	})
	lines, err := checked(t, "./good")
	require.NoError(t, err)
	assert.Empty(t, lines)
	lines, err = checked(t, "./bad", "./good")
	require.ErrorIs(t, err, errFound)
	assert.Equal(t, []string{
		"bad: bad.go:3: struct T has 21 fields, more than 20",
		"bad: bad.go:6: struct L has 21 fields, more than 20",
		"bad: bad.go:9: func (T).f has 61 lines, more than 60",
		"bad: bad.go:71: a func without a name has 61 lines, more than 60",
		"bad: generic.go:5: func (G).f has 61 lines, more than 60",
		"bad: elsewhere.go: the file has 401 lines, more than 400",
	}, lines)
}

// TestFigures: -v prints the largest of each kind, and counts wide comments.
func TestFigures(t *testing.T) {
	wide := strings.Repeat("ä", 96)
	inModule(t, map[string]string{"a.go": "// " + wide + "a\npackage m\n\n// " + wide + "ab\n\n/*\n" + wide + "abcd\n" + wide +
		"abcde\n*/\nvar x = `\n" + wide + wide + "\n`\n\nfunc f() {\n\t// " + wide + "\n}\n\ntype (\n\tA struct{ a int }\n\tB struct{ a, b int }\n)\n"})
	lines, err := checked(t, "-v", ".")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"example.com/m:",
		"  21 lines in 1 files, 1 functions, 2 structs; 3 comment lines of more than 100 columns",
		"  a.go:20: struct B has 2 fields",
		"  a.go:19: struct A has 1 fields",
		"  a.go:14: func f has 3 lines",
		"  a.go: the file has 21 lines",
		"  no layers; 0 references between files, 0 of them to functions and methods",
	}, lines)
}

// doc is documentation with layers.
func doc(layers ...string) string {
	return "// Package p is a package.\n//\n//\tcode.go    that is no layer\n//\n// # Layers\n//\n// From the bottom up:\n//\n//\t" +
		strings.Join(layers, "\n//\t") + "\n//\n// And:\n//\n//\tmore.go    that is none either\npackage p\n"
}

// layered are the files of a package that refers to other files in every way.
var layered = map[string]string{
	"p/low.go": `package p

type low struct{ field int }

func (l *low) method() {}

func (l low) up(h *high) { h.method(); h.method() }

type generic[T any] struct{ inner T }

func (g *generic[T]) get() T { return g.inner }

const limit = 1

type other struct{ field *int }
`,
	"p/beside.go": "package p\n\nvar beside = limit\n\nfunc own() int { return beside + own() }\n",
	"p/high.go": `package p

import "strings"

type high struct{ low }

func (h *high) method() {
	limit := limit
	h.low.method()
	h.field, h.low.field = limit, beside
	*other{}.field = 1
	var g generic[int]
	_, _ = g.get(), generic[string]{inner: strings.ToUpper("")}
}
`,
	"p/none.go": "package p\n",
}

// with returns layered with the documentation.
func with(doc string) map[string]string {
	files := map[string]string{"p/doc.go": doc}
	for name, text := range layered {
		files[name] = text
	}
	return files
}

// TestReferences: each is counted once, whatever it is, and only those between layers.
func TestReferences(t *testing.T) {
	inModule(t, with(doc("low.go    below", "be*.go high.go  above")))
	packages, err := load("", []string{"./p"})
	require.NoError(t, err)
	require.Len(t, packages, 1)
	l := layersOf(packages[0])
	assert.True(t, l.listed)
	assert.Empty(t, l.mistakes)
	assert.Equal(t, []pair{
		{"high.go", "low.go", []string{"field", "field", "generic", "generic.get", "inner", "limit", "low", "low.method", "other"}, false},
		{"low.go", "high.go", []string{"high", "high.method"}, true},
		{"beside.go", "low.go", []string{"limit"}, false},
	}, l.pairs)
	assert.Equal(t, tally{12, 2}, l.all)
	assert.Equal(t, tally{3, 1}, l.calls)
	assert.Equal(t, []string{
		"more than one in 10 references between layers points up: 2 of 12, and 1 of 3 to functions and methods",
		"up: low.go uses high.go: high high.method",
	}, l.problems())
}

// TestLayersOnOneLevel: files of a layer are free to use each other.
func TestLayersOnOneLevel(t *testing.T) {
	inModule(t, with(doc("low.go beside.go high.go", "doc.go")))
	lines, err := checked(t, "-v", "./p")
	require.NoError(t, err)
	assert.Equal(t, "  references between layers that point up: 0 of 0, and 0 of 0 to functions and methods", lines[len(lines)-1])
}

// TestLayersThatDoNotFit: the list has each file once.
func TestLayersThatDoNotFit(t *testing.T) {
	inModule(t, with(doc("low.go gone.go below", "l*.go none.go")))
	lines, err := checked(t, "./p")
	require.ErrorIs(t, err, errFound)
	assert.Equal(t, []string{
		"p: gone.go is in a layer, but there is no such file",
		"p: low.go is in two layers",
		"p: beside.go is in no layer",
		"p: high.go is in no layer",
	}, lines)
}

// TestAlmostAllDown: one in ten is allowed, for all and for calls.
func TestAlmostAllDown(t *testing.T) {
	for _, c := range []struct {
		all, calls tally
		wrong      bool
	}{
		{tally{10, 1}, tally{10, 1}, false},
		{tally{0, 0}, tally{0, 0}, false},
		{tally{19, 2}, tally{10, 1}, true},
		{tally{100, 2}, tally{19, 2}, true},
	} {
		l := layers{listed: true, all: c.all, calls: c.calls}
		assert.Equal(t, c.wrong, len(l.problems()) > 0, c)
	}
}

// TestLocks: only a struct with an annotation needs a line for each field.
func TestLocks(t *testing.T) {
	inModule(t, map[string]string{"a.go": `package m

import "sync"

type free struct {
	mu   sync.Mutex // guards all
	a, b int
}

type guarded struct {
	a, b int
	mu   sync.Mutex
	// c is the third.
	//
	// +checklocks:mu
	c int
}

func f() {
	var _ struct {
		mu   sync.Mutex
		a, b int
		c    int // +checklocks:mu
	}
}
`})
	lines, err := checked(t, ".")
	require.ErrorIs(t, err, errFound)
	assert.Equal(t, []string{
		"example.com/m: a.go:11: a and b share a line in a struct with guarded fields",
		"example.com/m: a.go:22: a and b share a line in a struct with guarded fields",
	}, lines)
}

// TestNoPackages: nothing to check is nothing wrong.
func TestNoPackages(t *testing.T) {
	lines, err := checked(t)
	require.NoError(t, err)
	assert.Empty(t, lines)
}

// TestMistakes: what cannot be checked is an error of its own.
func TestMistakes(t *testing.T) {
	inModule(t, map[string]string{"p/p.go": "package p\n\nvar x int = \"\"\n"})
	for _, args := range [][]string{{"./p"}, {"./gone"}} {
		_, err := checked(t, args...)
		require.Error(t, err)
		assert.NotErrorIs(t, err, errFound)
		assert.Contains(t, err.Error(), "go list")
	}
}

// TestItself: this program keeps its own rules.
func TestItself(t *testing.T) {
	lines, err := checked(t, ".")
	require.NoError(t, err)
	assert.Empty(t, lines)
}
