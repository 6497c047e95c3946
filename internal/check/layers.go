package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/types"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// One in maxUp references may point up.
const maxUp = 10

// layers are a package's files in their order, and how they refer to each other.
type layers struct {
	listed   bool
	mistakes []string // of the list
	pairs    []pair   // of files in different layers, or of any where nothing is listed; worst first
	all      tally    // references of every kind
	calls    tally    // those to functions and methods
}

// tally counts references.
type tally struct{ n, up int }

func (t *tally) add(up bool) {
	t.n++
	if up {
		t.up++
	}
}

func (t tally) tooMany() bool { return t.up*maxUp > t.n }

// pair is the references from one file to another.
type pair struct {
	from, to string
	names    []string
	up       bool
}

func (p pair) String() string {
	return fmt.Sprintf("%s uses %s: %s", p.from, p.to, strings.Join(p.names, " "))
}

func layersOf(p *pkg) *layers {
	l := &layers{}
	list := listOf(p)
	l.listed = list != nil
	level := l.levels(p, list)
	pairs := make(map[[2]string]*pair)
	for _, r := range references(p) {
		from, ok1 := level[r.from]
		to, ok2 := level[r.to]
		if l.listed && (!ok1 || !ok2 || from == to) {
			continue
		}
		key := [2]string{r.from, r.to}
		if pairs[key] == nil {
			pairs[key] = &pair{from: r.from, to: r.to, up: l.listed && from < to}
		}
		x := pairs[key]
		x.names = append(x.names, r.name)
		l.all.add(x.up)
		if r.call {
			l.calls.add(x.up)
		}
	}
	for _, x := range pairs {
		l.pairs = append(l.pairs, *x)
	}
	slices.SortFunc(l.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(len(b.names), len(a.names)), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	return l
}

// listOf returns the patterns of each layer in the documentation of a package, from the bottom up, or
// nil if there are none.
func listOf(p *pkg) (list [][]string) {
	for _, name := range p.sorted() {
		below := false
		for _, block := range new(comment.Parser).Parse(p.files[name].Doc.Text()).Content {
			switch b := block.(type) {
			case *comment.Heading:
				below = len(b.Text) == 1 && b.Text[0] == comment.Plain("Layers")
			case *comment.Code:
				if !below {
					continue
				}
				for line := range strings.Lines(b.Text) {
					list = append(list, patterns(line))
				}
				return list
			}
		}
	}
	return nil
}

// patterns are the words at the start of a line that name files.
func patterns(line string) []string {
	words := strings.Fields(line)
	for i, w := range words {
		if path.Ext(w) != ".go" {
			return words[:i]
		}
	}
	return words
}

// levels returns the layer of each file, and notes what is wrong with the list.
func (l *layers) levels(p *pkg, list [][]string) map[string]int {
	level := make(map[string]int)
	for i, layer := range list {
		for _, pattern := range layer {
			found := false
			for _, name := range p.sorted() {
				if ok, err := path.Match(pattern, name); err != nil || !ok {
					continue
				}
				found = true
				if at, twice := level[name]; twice && at != i {
					l.mistakes = append(l.mistakes, fmt.Sprintf("%s is in two layers", name))
				}
				level[name] = i
			}
			if !found {
				l.mistakes = append(l.mistakes, fmt.Sprintf("%s is in a layer, but there is no such file", pattern))
			}
		}
	}
	for _, name := range p.sorted() {
		if _, ok := level[name]; l.listed && !ok && declares(p.files[name]) {
			l.mistakes = append(l.mistakes, fmt.Sprintf("%s is in no layer", name))
		}
	}
	return level
}

// declares reports whether a file has more than documentation.
func declares(f *ast.File) bool { return len(f.Decls) > 0 }

// problems returns what is wrong with the layers, and the worst references if too many point up.
func (l *layers) problems() []string {
	found := slices.Clone(l.mistakes)
	if !l.all.tooMany() && !l.calls.tooMany() {
		return found
	}
	found = append(found, fmt.Sprintf("more than one in %d references between layers points up: %s", maxUp, l.figures()))
	return append(found, l.worst()...)
}

// figures says how many references there are, and how many point up.
func (l *layers) figures() string {
	return fmt.Sprintf("%d of %d, and %d of %d to functions and methods", l.all.up, l.all.n, l.calls.up, l.calls.n)
}

// worst returns the pairs of files with the most references up.
func (l *layers) worst() (lines []string) {
	for _, x := range l.pairs {
		if x.up && len(lines) < most {
			lines = append(lines, "up: "+x.String())
		}
	}
	return lines
}

func (l *layers) print(out io.Writer) {
	if !l.listed {
		fmt.Fprintf(out, "  no layers; %d references between files, %d of them to functions and methods\n", l.all.n, l.calls.n)
		return
	}
	fmt.Fprintf(out, "  references between layers that point up: %s\n", l.figures())
	for _, line := range l.worst() {
		fmt.Fprintf(out, "  %s\n", line)
	}
}

// reference says that a file uses something that another file of the package declares.
type reference struct {
	from, to, name string
	call           bool // of a function or a method
}

// references returns each once, in the order of their names.
func references(p *pkg) []reference {
	type use struct {
		from string
		of   types.Object
	}
	found := make(map[use]reference)
	for id, object := range p.info.Uses {
		object = origin(object)
		to, ok := p.declares(object)
		if from := p.file(id.Pos()); ok && from != to {
			_, call := object.(*types.Func)
			found[use{from, object}] = reference{from, to, qualified(object), call}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.name, b.name))
	})
}
