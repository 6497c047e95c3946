package overlay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// Module is a module whose packages are laid into the standard library.
type Module struct {
	Path, Version, Sum string
	Dir                string
}

// Source is where the library is, and what it needs.
type Source struct {
	Library Module
	Needs   []Module
}

// needs are the modules that the library needs in a program, and where their packages go to.
var needs = map[string]string{
	"golang.org/x/sys/unix":            "unix",
	"github.com/libp2p/go-buffer-pool": "bufferpool",
}

// Locate finds the sources of the library. They are those of the module that this program was
// built from, so that tool and library are always of one version: the folder that SANGO_SOURCE
// names; or that in which this program was built, if it is there; or the module cache, where go
// install has put it. Other modules are taken from the module cache in the versions that the
// library's go.mod has, and are fetched where they are not there.
func Locate(goCmd string, modCache string) (*Source, error) {
	lib, err := library(goCmd, modCache)
	if err != nil {
		return nil, err
	}
	s := &Source{Library: lib}
	versions, err := requirements(goCmd, lib.Dir)
	if err != nil {
		return nil, err
	}
	sums, err := os.ReadFile(filepath.Join(lib.Dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"github.com/libp2p/go-buffer-pool", "golang.org/x/sys"} {
		m := Module{Path: path, Version: versions[path]}
		if m.Version == "" {
			return nil, fmt.Errorf("%s does not require %s", filepath.Join(lib.Dir, "go.mod"), path)
		}
		for line := range strings.Lines(string(sums)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == path && f[1] == m.Version {
				m.Sum = f[2]
			}
		}
		if m.Dir, err = inCache(goCmd, modCache, m); err != nil {
			return nil, err
		}
		s.Needs = append(s.Needs, m)
	}
	return s, nil
}

// library finds the library's own module.
func library(goCmd, modCache string) (Module, error) {
	m := Module{Version: "(devel)"}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		m.Version, m.Sum = info.Main.Version, info.Main.Sum
		m.Path = info.Main.Path
	}
	if dir := os.Getenv("SANGO_SOURCE"); dir != "" {
		return at(m, dir)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if m, err := at(m, filepath.Join(filepath.Dir(file), "../../..")); err == nil {
			return m, nil
		}
	}
	if m.Path == "" || m.Sum == "" {
		return m, errors.New("the library is not where sango was built: set SANGO_SOURCE to its folder")
	}
	dir, err := inCache(goCmd, modCache, m)
	if err != nil {
		return m, err
	}
	return at(m, dir)
}

// at makes sure that the library is in dir, and takes the path of its module from there.
func at(m Module, dir string) (Module, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return m, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return m, err
	}
	if _, err := os.Stat(filepath.Join(dir, "internal/sango/san")); err != nil {
		return m, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	path, ok := strings.CutPrefix(first, "module ")
	if !ok {
		return m, fmt.Errorf("%s does not begin with the module's name", filepath.Join(dir, "go.mod"))
	}
	m.Path, m.Dir = strings.TrimSpace(path), dir
	return m, nil
}

// requirements are the versions that a go.mod requires.
func requirements(goCmd, dir string) (map[string]string, error) {
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := goJSON(&mod, goCmd, "mod", "edit", "-json", filepath.Join(dir, "go.mod")); err != nil {
		return nil, err
	}
	versions := make(map[string]string)
	for _, r := range mod.Require {
		versions[r.Path] = r.Version
	}
	return versions, nil
}

// inCache returns the folder of a module in the module cache.
func inCache(goCmd, modCache string, m Module) (string, error) {
	dir := filepath.Join(modCache, escape(m.Path)+"@"+escape(m.Version))
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return dir, nil
	}
	var got struct{ Dir, Error string }
	err := goJSON(&got, goCmd, "mod", "download", "-json", m.Path+"@"+m.Version)
	if got.Error != "" {
		err = fmt.Errorf("%s", got.Error)
	}
	return got.Dir, err
}

// escape writes a module's path as the module cache does.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('!')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// goJSON runs the go command outside of any module, and decodes what it prints.
func goJSON(to any, goCmd string, args ...string) error {
	cmd := exec.Command(goCmd, args...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GO111MODULE=on")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, to); err == nil {
		err = jsonErr
	}
	if err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}
