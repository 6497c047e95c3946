package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// toolchain is the go command that builds, and what it says of itself.
type toolchain struct {
	Cmd string `json:"-"` // the command
	Dir string `json:"-"` // to run it in, "" for the current one

	GOROOT, GOVERSION, GOOS, GOARCH, GOMODCACHE, GOCACHE, GOFLAGS, GOTOOLCHAIN string
}

// find asks the go command, in dir, which toolchain it uses there: it may be another than the one
// installed.
func find(dir string) (*toolchain, error) {
	t := &toolchain{Cmd: "go", Dir: dir}
	cmd := exec.Command(t.Cmd, "env", "-json", "GOROOT", "GOVERSION", "GOOS", "GOARCH", "GOMODCACHE", "GOCACHE",
		"GOFLAGS", "GOTOOLCHAIN")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	if err := json.Unmarshal(out, t); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return t, t.leaveModCache()
}

// leaveModCache gives a toolchain that lies in the module cache, where an overlay must not
// replace anything, a name outside: a link in the build cache, whose name is the toolchain's, so
// that what was built with it once is found again.
func (t *toolchain) leaveModCache() error {
	rel, err := filepath.Rel(t.GOMODCACHE, t.GOROOT)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil
	}
	dir := filepath.Join(t.GOCACHE, "sango")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	link := filepath.Join(dir, filepath.Base(t.GOROOT))
	if to, err := os.Readlink(link); err != nil || to != t.GOROOT {
		temp := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(t.GOROOT, temp); err != nil {
			return err
		}
		if err := os.Rename(temp, link); err != nil {
			return err
		}
	}
	t.GOROOT, t.Cmd = link, filepath.Join(link, "bin", "go")
	return nil
}

// env is the environment of the go command.
func (t *toolchain) env(more ...string) []string {
	e := append(os.Environ(), more...)
	if t.Cmd != "go" {
		e = append(e, "GOROOT="+t.GOROOT, "GOTOOLCHAIN=local")
	}
	return e
}
