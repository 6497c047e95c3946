package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArchitecture: docs/architecture.md names files that exist, and functions that are in them.
func TestArchitecture(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	require.NoError(t, err)
	quoted := regexp.MustCompile("`([^`]+)`")
	plain := regexp.MustCompile(`\| ([a-z/]+/[a-z_]+\.go) \|`)
	functions := 0
	for line := range strings.Lines(string(doc)) {
		for _, m := range plain.FindAllStringSubmatch(line, -1) {
			assert.FileExists(t, filepath.Join(root, m[1]))
		}
		source := ""
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if strings.HasSuffix(name, ".go") {
				text, err := os.ReadFile(filepath.Join(root, name))
				assert.NoError(t, err)
				source = string(text)
				continue
			}
			if source == "" {
				continue
			}
			functions++
			name = name[strings.LastIndexByte(name, '.')+1:]
			assert.Regexp(t, `(?m)^func (\([^)]*\) )?`+regexp.QuoteMeta(name)+`\(`, source, "%s in %q", name, line)
		}
	}
	assert.Greater(t, functions, 100, "functions found")
}
