package sannet_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNames: a program that imports this package alone can name every path and reason.
func TestNames(t *testing.T) {
	assert.ElementsMatch(t, constants(t, "../switch/reason.go", "../switch/route.go"), constants(t, "names.go"))
}

// constants are the paths and reasons that files declare.
func constants(t *testing.T, files ...string) (names []string) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for _, id := range v.Names {
					if strings.HasPrefix(id.Name, "Reason") || strings.HasPrefix(id.Name, "Path") {
						names = append(names, id.Name)
					}
				}
			}
			return true
		})
	}
	require.NotEmpty(t, names)
	return names
}
