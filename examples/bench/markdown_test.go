package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMarkdownOfOneMode(t *testing.T) {
	r0, cells := fakeCells()
	cells = append(cells[:1], &cell{rig: r0, load: cells[0].load, carrier: carrier{name: "buffered"},
		rounds: [][]float64{{50, 0, 0}, {100, 0, 0}, {2000, 0, 0}}}, cells[1])
	assert.Equal(t, ""+
		"| work | TCP | buffered | sannet | ratio to TCP, quartiles | goal | ratio to buffered | goal |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n"+
		"| roundtrip/64B | 2.00 µs | 100 ns | 100 ns | 10.0x (6 to 25) | 35x | 1.00x | 1x |\n",
		newReport(options{}, []*rig{r0}, cells, nil, 3).markdown())
}

// TestMarkdownOfTwoModes: side by side, with a gap for what was not measured.
func TestMarkdownOfTwoModes(t *testing.T) {
	one, cells := fakeCells()
	two, others := fakeCells()
	two.mode, two.title = modeTwo, "two processes"
	for _, c := range others {
		c.rig = two
	}
	assert.Equal(t, ""+
		"| work | sannet, one process | ratio to TCP, quartiles | "+
		"TCP, two processes | sannet, two processes | ratio to TCP, quartiles |\n"+
		"| --- | --- | --- | --- | --- | --- |\n"+
		"| roundtrip/64B | 100 ns | - | 2.00 µs | 100 ns | 10.0x (6 to 25) |\n",
		newReport(options{}, []*rig{one, two}, append(cells[1:], others...), nil, 3).markdown())
}

func TestMarkdownOrder(t *testing.T) {
	r := &report{}
	for _, w := range []string{"b/2", "b/1", "a/8", "b/3", "a/7"} {
		r.Results = append(r.Results, result{Workload: w, Count: int(w[2] - '0'), Metrics: []figure{{Name: "rate"}}})
	}
	var got []string
	for _, row := range r.rows() {
		got = append(got, row.workload)
	}
	assert.Equal(t, []string{"b/1", "b/2", "b/3", "a/7", "a/8"}, got)
}

// TestNamedTicks: a name has room, or is left out.
func TestNamedTicks(t *testing.T) {
	ticks := namedTicks(map[float64]string{1: "1", 64: "64", 70: "70", 1 << 20: "1Mi"}).Ticks(0, 0)
	require.Len(t, ticks, 4)
	assert.Equal(t, []string{"1", "64", "", "1Mi"}, []string{ticks[0].Label, ticks[1].Label, ticks[2].Label, ticks[3].Label})
}

func TestSpaced(t *testing.T) {
	assert.Equal(t, "-2.00 KiB", bytesPerConn.spaced(-2048))
	assert.Equal(t, "0.90", share.spaced(0.9))
	assert.Equal(t, "5.00 /s", opsPerSecond.spaced(5))
}

const doc = `text

    go -C examples/bench run . -quick -conns 8

| old |
| 1 |

    go -C examples/bench run . -h

    go -C examples/bench run . -run '^active' -conns 1
| old |
end
`

func TestReplaceTable(t *testing.T) {
	got, err := replaceTable(doc, "-run ^active -conns 1", "| new |\n| 2 |\n| 3 |\n")
	require.NoError(t, err)
	want, _ := strings.CutSuffix(doc, "| old |\nend\n")
	assert.Equal(t, want+"| new |\n| 2 |\n| 3 |\nend\n", got)
	_, err = replaceTable(doc, "-h", "| new |\n")
	assert.EqualError(t, err, `no line "go -C examples/bench run . -h" with a table below`)
}

func TestWithoutDoc(t *testing.T) {
	for _, args := range []string{"-doc f -quick -run x", "-quick -doc=f -run x", "-quick -run x --doc f", "-quick -run x -doc"} {
		assert.Equal(t, []string{"-quick", "-run", "x"}, withoutDoc(strings.Fields(args)), args)
	}
}

// TestDoc: one table of a file is made anew, or all.
func TestDoc(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	one := docPrefix + "-quick -time 1ms -plot= -over sannet -run '^roundtrip/1B$' -procs 1"
	two := docPrefix + "-quick -time 1ms -plot= -over sannet -run ^active -conns 1,2"
	old := one + "\n\n| old |\n\n" + two + "\n\n| old |\n"
	read := func() string {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(b)
	}
	require.NoError(t, os.WriteFile(file, []byte(old), 0o666))
	stdout, stderr, code := runToEnd(t,
		append(strings.Fields(strings.TrimPrefix(two, docPrefix)), "-doc", file)...)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "active/2")
	number := `[0-9.]+ [^ ]+ \| `
	ratio := `[0-9.]+x \([^|]*\) \| `
	row := func(name string) string {
		return `\| ` + name + ` \| ` + number + number + ratio + number + number + strings.TrimSuffix(ratio, " ") + "\n"
	}
	assert.Regexp(t, row("active/1")+row("active/2")+"$", read())
	assert.Equal(t, 1, strings.Count(read(), "old"))

	stdout, stderr, code = runToEnd(t, "-doc", file)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "roundtrip/1B")
	assert.Contains(t, stdout, "active/2")
	assert.Regexp(t, `\| roundtrip/1B \| `+number+number+ratio+"35x \\|\n", read())
	assert.NotContains(t, read(), "old")

	// What is in no line of the file is not measured.
	_, stderr, code = runToEnd(t, "-doc", file, "-quick")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, `no line "go -C examples/bench run . -quick" with a table below`)
	require.NoError(t, os.WriteFile(file, []byte(docPrefix+"-no such flag\n\n| old |\n"), 0o666))
	_, stderr, code = runToEnd(t, "-doc", file)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "-no such flag: flag provided but not defined: -no")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, stderr, code = runToEnd(t, "-doc", file)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "has a table below")
}

// TestLacks: what would take more descriptors than there are is left out, and said.
func TestLacks(t *testing.T) {
	one, two := &rig{mode: modeOne, title: "one process"}, &rig{mode: modeTwo, title: "two processes"}
	for _, r := range []*rig{one, two} {
		for _, name := range []string{"tcp", "sannet"} {
			r.carriers = append(r.carriers, carrier{name: name})
		}
	}
	o, err := parse(strings.Fields("-conns 100,1000 -run ^active -over sannet"), nil)
	require.NoError(t, err)
	cells, missing, err := cellsOf(o, []*rig{one, two}, 2000)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"active/1000 over tcp, one process, was not measured: it takes 2000 descriptors in a process, and the limit is 2000",
	}, missing)
	assert.Len(t, cells, 7)
	for _, c := range cells {
		c.rounds = [][]float64{{1, 1}}
	}
	r := newReport(o, []*rig{one, two}, cells, missing, 1)
	f, ok := r.find(modeOne, "active/1000", "sannet", "rate")
	assert.True(t, ok)
	assert.Nil(t, f.Ratio)
	assert.Contains(t, r.notes(), missing[0])
	assert.Greater(t, descriptorLimit(), ownDescriptors)
}
