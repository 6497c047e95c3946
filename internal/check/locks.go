package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// guard begins the annotation that says which mutex guards a field.
const guard = "// +checklocks:"

// lockProblems returns the structs whose annotations another analyzer, checklocks, would misread: it
// counts lines where it means fields, and takes the annotation of a field below a line with several
// names for one of the field before.
func lockProblems(p *pkg) (found []string) {
	for _, name := range p.sorted() {
		ast.Inspect(p.files[name], func(n ast.Node) bool {
			t, ok := n.(*ast.StructType)
			if !ok || !guarded(t) {
				return true
			}
			for _, f := range t.Fields.List {
				if len(f.Names) > 1 {
					found = append(found, fmt.Sprintf("%s:%d: %s and %s share a line in a struct with guarded fields",
						name, p.line(f.Pos()), f.Names[0], f.Names[1]))
				}
			}
			return true
		})
	}
	return found
}

// guarded reports whether some field of t has the annotation.
func guarded(t *ast.StructType) bool {
	for _, f := range t.Fields.List {
		for _, group := range []*ast.CommentGroup{f.Doc, f.Comment} {
			if group == nil {
				continue
			}
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, guard) {
					return true
				}
			}
		}
	}
	return false
}
