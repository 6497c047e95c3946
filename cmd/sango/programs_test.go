//go:build linux

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// one is a program of one module, without others.
func one(t *testing.T) string {
	return program(t, map[string]string{
		"go.mod":  "module hello\n\ngo 1.26\n",
		"main.go": hello,
		"text.go": "package main\n\nconst text = \"hello\"\n",
	})
}

func TestBuild(t *testing.T) {
	dir := one(t)
	before := content(t, dir)
	bin := filepath.Join(t.TempDir(), "hello")
	in(t, dir).ok("build", "-o", bin)
	assert.Equal(t, said, overSAN(t, bin))
	assert.Equal(t, before, content(t, dir))

	// It says what it is, to people and to scanners.
	out := in(t, "").ok("version", bin)
	assert.Regexp(t, `^.*/hello: go1\.\S+, library [^@]+@\S+, patch [0-9a-f]{12}\n$`, out)
	info, err := buildinfo.ReadFile(bin)
	require.NoError(t, err)
	modules := make(map[string]string)
	for _, m := range info.Deps {
		modules[m.Path] = m.Sum
	}
	assert.Contains(t, modules, library(t))
	assert.Contains(t, modules["golang.org/x/sys"], "h1:")
	assert.Contains(t, modules["github.com/libp2p/go-buffer-pool"], "h1:")

	// The same again, from another folder.
	second := filepath.Join(t.TempDir(), "hello")
	in(t, filepath.Dir(dir)).ok("build", "-C", dir, "-o", second)
	a, err := os.ReadFile(bin)
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	assert.True(t, string(a) == string(b), "the two binaries differ")
}

func TestOff(t *testing.T) {
	dir := one(t)
	trace := filepath.Join(t.TempDir(), "trace")
	out := in(t, dir, "SANNET_PROVIDERS=none", "SANGO_TRACE="+trace).ok("run", ".")
	assert.Equal(t, said, out)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "san via")
	assert.Contains(t, string(text), "tcp: no SAN in use")
}

// What a program ends with is what sango ends with.
func TestExitCode(t *testing.T) {
	dir := program(t, map[string]string{"go.mod": "module x\n", "x_test.go": "package x\n\nimport \"testing\"\n\n" +
		"func TestX(t *testing.T) { t.Error() }\n"})
	_, err := in(t, dir).sango("test")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
}

func TestConnections(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	in(t, "testdata/conns", "SANGO_TRACE="+trace).ok("test", "-count=1", ".")
}

func TestVendor(t *testing.T) {
	dir := program(t, map[string]string{
		"go.mod":                          "module hello\n\ngo 1.26\n\nrequire example.com/text v1.0.0\n",
		"main.go":                         strings.Replace(hello, "text)", "text.Hello)", 1),
		"vendor/modules.txt":              "# example.com/text v1.0.0\n## explicit\nexample.com/text\n",
		"vendor/example.com/text/text.go": "package text\n\nconst Hello = \"hello\"\n",
	})
	main := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(main, []byte(strings.Replace(strings.Replace(hello, "text)", "text.Hello)", 1),
		`"net"`, "\"net\"\n\n\t\"example.com/text\"", 1)), 0o666))
	assert.Equal(t, said, in(t, dir).ok("run", "."))
}

func TestWorkspace(t *testing.T) {
	dir := program(t, map[string]string{
		"go.work":      "go 1.26\n\nuse (\n\t./hello\n\t./text\n)\n",
		"hello/go.mod": "module hello\n\ngo 1.26\n",
		"hello/main.go": strings.Replace(strings.Replace(hello, "text)", "text.Hello)", 1),
			`"net"`, "\"net\"\n\n\t\"example.com/text\"", 1),
		"text/go.mod":  "module example.com/text\n\ngo 1.26\n",
		"text/text.go": "package text\n\nconst Hello = \"hello\"\n",
	})
	assert.Equal(t, said, in(t, dir).ok("run", "./hello"))
}

func TestTwoMains(t *testing.T) {
	text := "package main\n\nconst text = \"hello\"\n"
	dir := program(t, map[string]string{
		"go.mod":        "module hello\n\ngo 1.26\n",
		"cmd/a/main.go": hello, "cmd/a/text.go": text,
		"cmd/b/main.go": hello, "cmd/b/text.go": text,
	})
	bin := t.TempDir()
	in(t, dir).ok("build", "-o", bin+"/", "./...")
	assert.Equal(t, said, overSAN(t, filepath.Join(bin, "a")))
	assert.Equal(t, said, overSAN(t, filepath.Join(bin, "b")))
}

// An overlay that GOFLAGS has holds as well, in the program and in package net.
func TestOtherOverlay(t *testing.T) {
	dir := one(t)
	root := strings.TrimSpace(goEnv(t, "GOROOT"))
	doc := filepath.Join(root, "src/net/tcpsock.go")
	source, err := os.ReadFile(doc)
	require.NoError(t, err)
	files := program(t, map[string]string{
		"text.go":    "package main\n\nimport \"net\"\n\nvar text = net.Hello\n",
		"tcpsock.go": string(source) + "\n// Hello is new.\nconst Hello = \"hello\"\n",
	})
	over := program(t, map[string]string{"overlay.json": `{"Replace": {
		"text.go": "` + files + `/text.go", "` + doc + `": "` + files + `/tcpsock.go"}}`})
	in := in(t, dir, "GOFLAGS=-overlay="+over+"/overlay.json -buildvcs=false")
	assert.Equal(t, said, in.ok("run", "."))
}

func goEnv(t *testing.T, name string) string {
	out, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// A program has its own x/sys, and perhaps sansock itself, whatever versions these are.
func TestOtherVersions(t *testing.T) {
	dir := program(t, map[string]string{
		"go.mod": "module hello\n\ngo 1.26\n\nrequire golang.org/x/sys v0.1.0\n\n" +
			"replace golang.org/x/sys => ./sys\n",
		"main.go":          hello,
		"text.go":          "package main\n\nimport \"golang.org/x/sys/unix\"\n\nvar text = unix.Hello\n",
		"sys/go.mod":       "module golang.org/x/sys\n\ngo 1.18\n",
		"sys/unix/unix.go": "package unix\n\nconst Hello = \"hello\"\n",
	})
	assert.Equal(t, said, in(t, dir).ok("run", "."))
}

func TestUsesSansock(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	dir := program(t, map[string]string{
		"go.mod": "module hello\n\ngo 1.26\n\nrequire " + library(t) + " v0.0.0\n\n" +
			"require (\n\tgithub.com/libp2p/go-buffer-pool v0.1.0 // indirect\n\tgolang.org/x/sys v0.50.0 // indirect\n)\n\n" +
			"replace " + library(t) + " => " + root + "\n",
		"go.sum": string(sum),
		"main.go": strings.NewReplacer("net.Listen(", "sannet.Listen(", "net.Dial(", "sannet.Dial(",
			`"net"`, `"sansock/sannet"`, "%T ", "", "c, b, err)", "b, err)").Replace(hello),
		"text.go": "package main\n\nconst text = \"hello\"\n",
	})
	out := in(t, dir).ok("run", "-mod=mod", ".")
	assert.Contains(t, out, "hello <nil>\n")
}

func TestOtherSystem(t *testing.T) {
	out, err := in(t, one(t), "GOOS=darwin").sango("build")
	require.Error(t, err)
	assert.Equal(t, "sango: programs for darwin are not supported: only those for linux are\n", out)
}

func TestEnv(t *testing.T) {
	dir := one(t)
	folder := t.TempDir()
	out := in(t, dir).ok("env", "-dir", folder)
	var goflags string
	for line := range strings.Lines(out) {
		if f, ok := strings.CutPrefix(strings.TrimSpace(line), "GOFLAGS="); ok {
			goflags = strings.Trim(f, "'")
		}
	}
	require.NotEmpty(t, goflags)
	bin := filepath.Join(t.TempDir(), "hello")
	out, err := in(t, dir).run([]string{"GOFLAGS=" + goflags}, "go", "build", "-o", bin)
	require.NoError(t, err, out)
	assert.Equal(t, said, overSAN(t, bin))
}
