//go:build linux

package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// doctored returns a GOROOT whose package net differs from that of the toolchain.
func doctored(t *testing.T, file, old, new string) string {
	t.Helper()
	root := goEnv(t, "GOROOT")
	dir := t.TempDir()
	link := func(from, to string, but ...string) {
		entries, err := os.ReadDir(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(to, 0o777))
		for _, e := range entries {
			if len(but) == 0 || e.Name() != but[0] {
				require.NoError(t, os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
			}
		}
	}
	link(root, dir, "src")
	link(filepath.Join(root, "src"), filepath.Join(dir, "src"), "net")
	link(filepath.Join(root, "src/net"), filepath.Join(dir, "src/net"), file)
	text, err := os.ReadFile(filepath.Join(root, "src/net", file))
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	text = []byte(strings.Replace(string(text), old, new, 1))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "src/net", file), text, 0o666))
	return dir
}

// A release that has otherwise what the patch relies on is told in one line.
func TestOtherRelease(t *testing.T) {
	version := strings.TrimSpace(goEnv(t, "GOVERSION"))
	for _, c := range []struct{ name, file, old, new, says string }{
		{"signature", "fd_posix.go", "func (fd *netFD) shutdown(how int) error", "func (fd *netFD) shutdown(how uint) error",
			"package net: (*netFD).shutdown is func(uint) error, the patch needs func(int) error"},
		{"field", "fd_posix.go", "\tsotype      int", "\tsotype      uint", "package net: struct netFD is"},
		{"missing", "writev_unix.go", "func (fd *netFD) writeBuffers", "func (fd *netFD) writeAll",
			"package net has no function (*netFD).writeBuffers"},
		{"called", "rawconn.go", "func newRawConn(fd *netFD) *rawConn", "func newRawConn(fd *netFD, _ int) *rawConn",
			"package net: newRawConn is"},
		{"new use of the socket", "net.go", "func (c *conn) ok() bool { return",
			"func (c *conn) more() int { return c.fd.pfd.Sysfd }\nfunc (c *conn) ok() bool { return",
			"package net: (*conn).more is one that uses a socket"},
		{"constant", "fd_unix.go", "readSyscallName     =", "readingSyscallName  =", "package net has no readSyscallName"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := doctored(t, c.file, c.old, c.new)
			out, err := in(t, one(t), "GOROOT="+root).sango("build")
			require.Error(t, err)
			assert.True(t, strings.HasPrefix(out, "sango: "+version+" is not supported: "+c.says), out)
			assert.Equal(t, 1, strings.Count(out, "\n"), out)
		})
	}
}

// readOnly runs the tool, where neither the toolchain nor the module cache can be written to.
func readOnly() {
	for _, dir := range strings.Split(os.Getenv("SANGO_TEST_READONLY"), ":") {
		if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
			fmt.Println("cannot mount:", err)
			os.Exit(77)
		}
		flags := uintptr(syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY)
		if err := syscall.Mount("", dir, "", flags, ""); err != nil {
			fmt.Println("cannot mount:", err)
			os.Exit(77)
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o666); err == nil {
			fmt.Println("it can be written to")
			os.Exit(1)
		}
	}
	os.Unsetenv("SANGO_TEST_READONLY")
	err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
	fmt.Println(err)
	os.Exit(1)
}

func TestReadOnly(t *testing.T) {
	r := in(t, one(t))
	bin, err := tool()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, bin, "run", ".")
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "SANGO_TEST_READONLY="+goEnv(t, "GOROOT")+":"+goEnv(t, "GOMODCACHE"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("no namespace with mounts of its own: %v %s", err, out)
	}
	require.NoError(t, err, string(out))
	assert.Equal(t, said, string(out))
}

// proxy serves a module, and those of the module cache, from files.
func proxy(t *testing.T, path, version string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(path + "@" + version + "/" + name)
		require.NoError(t, err)
		_, err = w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	dir := program(t, map[string]string{
		path + "/@v/list":                 version + "\n",
		path + "/@v/" + version + ".info": `{"Version":"` + version + `"}`,
		path + "/@v/" + version + ".mod":  files["go.mod"],
		path + "/@v/" + version + ".zip":  b.String(),
	})
	return "file://" + dir + ",file://" + filepath.Join(goEnv(t, "GOMODCACHE"), "cache/download")
}

func TestInstallVersion(t *testing.T) {
	bin := t.TempDir()
	p := proxy(t, "example.com/hello", "v1.2.0", map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26\n",
		"main.go": hello,
		"text.go": "package main\n\nconst text = \"hello\"\n",
	})
	// With -modcacherw, so that the folder can be removed.
	r := in(t, t.TempDir(), "GOBIN="+bin, "GOPROXY="+p, "GONOSUMDB=*",
		"GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw")
	r.ok("install", "example.com/hello@v1.2.0")
	assert.Equal(t, said, overSAN(t, filepath.Join(bin, "hello")))
}

// The other supported release, where it has been fetched. It lies in the module cache.
func TestDownloadedToolchain(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library")
	}
	const version = "go1.27.4"
	r := in(t, one(t), "GOTOOLCHAIN="+version)
	if out, err := r.run([]string{"GOTOOLCHAIN=" + version, "GOPROXY=off"}, "go", "version"); err != nil {
		t.Skipf("%s is not in the module cache: %s", version, out)
	}
	bin := filepath.Join(t.TempDir(), "hello")
	r.ok("build", "-o", bin, ".")
	assert.Equal(t, said, overSAN(t, bin))
	assert.Contains(t, in(t, "").ok("version", bin), version)
}

// Ways to build that build the standard library anew.
func TestModes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library for each")
	}
	for _, c := range []struct {
		name string
		env  string
		args []string
	}{
		{"race", "", []string{"-race"}},
		{"without cgo", "CGO_ENABLED=0", nil},
		{"trimpath", "CGO_ENABLED=0", []string{"-trimpath"}},
		{"pie", "", []string{"-buildmode=pie"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "hello")
			r := in(t, one(t), c.env)
			r.ok(append(append([]string{"build", "-o", bin}, c.args...), ".")...)
			assert.Equal(t, said, overSAN(t, bin))
		})
	}
}

func TestCgo(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler")
	}
	dir := one(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text.go"),
		[]byte("package main\n\n// static const char *hello(void) { return \"hello\"; }\nimport \"C\"\n\n"+
			"var text = C.GoString(C.hello())\n"), 0o666))
	assert.Equal(t, said, in(t, dir, "CGO_ENABLED=1").ok("run", "."))
}
