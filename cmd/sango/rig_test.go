//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tool builds sango once, as users do.
var tool = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sango-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "sango")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	os.Stderr.Write(out)
	return bin, err
})

func TestMain(m *testing.M) {
	if os.Getenv("SANGO_TEST_READONLY") != "" {
		readOnly()
		return
	}
	code := m.Run()
	if bin, err := tool(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// runner runs commands in a folder.
type runner struct {
	t   *testing.T
	dir string
	env []string
}

func in(t *testing.T, dir string, env ...string) *runner {
	t.Helper()
	if raceEnabled {
		t.Skip("the tool is the same with the race detector")
	}
	return &runner{t, dir, env}
}

// sango runs the tool. It leaves nothing in the folder for temporary files.
func (r *runner) sango(args ...string) (out string, err error) {
	r.t.Helper()
	bin, err := tool()
	require.NoError(r.t, err)
	temp := r.t.TempDir()
	out, err = r.run(append([]string{"TMPDIR=" + temp}, r.env...), bin, args...)
	left, lerr := os.ReadDir(temp)
	assert.NoError(r.t, lerr)
	assert.Empty(r.t, left, "left behind")
	return out, err
}

func (r *runner) run(env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// ok is sango for what has to succeed.
func (r *runner) ok(args ...string) string {
	r.t.Helper()
	out, err := r.sango(args...)
	require.NoError(r.t, err, out)
	return out
}

// overSAN runs a program, and makes sure that its connections are over the SAN.
func overSAN(t *testing.T, bin string, args ...string) string {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	out, err := in(t, "").run([]string{"SANGO_TRACE=" + trace}, bin, args...)
	require.NoError(t, err, out)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	dials := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 6); f[2] == "dial" {
			assert.Equal(t, "san via emu", f[5])
			dials++
		}
	}
	assert.NotZero(t, dials)
	return out
}

// program writes files to a folder, and returns it. A name without content is a folder's.
func program(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	return dir
}

// library is the path of the library's module.
func library(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "module ")
}

// content returns everything in a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(file string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		files[file] = string(text)
		return err
	}))
	return files
}

const hello = `package main

import (
	"fmt"
	"io"
	"net"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			panic(err)
		}
		io.WriteString(c, text)
		c.Close()
	}()
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	b, err := io.ReadAll(c)
	fmt.Printf("%T %s %v\n", c, b, err)
}
`

const said = "*net.TCPConn hello <nil>\n"
