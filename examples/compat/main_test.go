package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const log = `{"Action":"start","Package":"p"}
{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA/case/san"}
{"Action":"fail","Test":"TestA/case/across/part"}
{"Action":"fail","Test":"TestA/case/across"}
{"Action":"pass","Test":"TestA/other/san"}
{"Action":"fail","Test":"TestA"}
{"Action":"output","Test":"TestB","Output":"--- PASS"}
{"Action":"pass","Test":"TestB"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail","Package":"p"}
no event
`

func TestParse(t *testing.T) {
	es := parse(strings.NewReader(log))
	require.Len(t, es, 7)
	assert.Equal(t, outcome{1, []string{"TestC"}, []string{"TestA/case/across/part", "TestA/case/across", "TestA"}}, es.all())
	assert.Equal(t, outcome{2, []string{"TestC"}, nil}, es.under("san"))
	assert.Equal(t, outcome{0, []string{"TestC"}, []string{"TestA/case/across/part", "TestA/case/across"}}, es.under("across"))
	assert.Equal(t, []string{"the suite"}, es.under("fallback").failed, "that did not get as far")
	assert.Zero(t, events{}.under("san"))
}

func TestPage(t *testing.T) {
	s := suite{program: "prog", covers: "this and that", dir: "dir"}
	got := string(page([]row{
		{s, "v1", "here", outcome{passed: 3}},
		{s, "v1", "there", outcome{passed: 1, skipped: []string{"TestC"}}},
		{s, "v1", "far", outcome{passed: 1, failed: []string{"TestD"}}},
		{s, "v1", "nowhere", outcome{}},
	}, "go1"))
	assert.Contains(t, got, `| prog | v1 | here | 3 tests pass |
|  |  | there | 1 test passes, not run: TestC |
|  |  | far | **failed**: TestD |
|  |  | nowhere | not run |

What the tests of each cover:

* prog: this and that (`+"`dir`"+`).
`)
}

// TestTable: the table that is checked in is of these suites, and of the versions that are in use.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/compat.md")
	require.NoError(t, err)
	table := string(text)
	assert.NotContains(t, table, "failed")
	for _, s := range suites {
		assert.Contains(t, table, "\n| "+s.program+" | ")
		for _, v := range s.versions {
			if !strings.Contains(v, "/") {
				continue
			}
			mod, err := os.ReadFile(filepath.Join("../..", s.dir, "go.mod"))
			if os.IsNotExist(err) {
				mod, err = os.ReadFile("../../go.mod")
			}
			require.NoError(t, err)
			m := regexp.MustCompile(`(?m)^\s*(?:require )?(` + regexp.QuoteMeta(v) + ` v\S+)`).FindSubmatch(mod)
			require.NotNil(t, m, v)
			assert.Contains(t, table, string(m[1]), "run go run ./examples/compat")
		}
	}
	// No example with a module of its own is left out, but for the bench, which needs its own for the plots, and sango's,
	// which has a table in docs/sango.md.
	mods, err := filepath.Glob("../*/go.mod")
	require.NoError(t, err)
	for _, mod := range mods {
		if name := filepath.Base(filepath.Dir(mod)); name != "bench" && name != "sango" {
			assert.Contains(t, table, "(`examples/"+name+"`)")
		}
	}
}
