package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The two ways in which a program is built, by the names of their folders.
const (
	overTCP = "tcp"
	overSAN = "san"
)

// build builds what the program needs, unless it is there.
func (p *program) build(bin string) error {
	for _, kind := range []string{overTCP, overSAN} {
		dir, err := filepath.Abs(filepath.Join(bin, kind))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		for _, pkg := range append([]string{"./drive", vegeta}, p.install...) {
			if err := install(kind, dir, pkg); err != nil {
				return err
			}
		}
	}
	return nil
}

func install(kind, dir, pkg string) error {
	if _, err := os.Stat(filepath.Join(dir, nameOf(pkg))); err == nil {
		return nil
	}
	cmd := exec.Command("go", "install", pkg)
	if kind == overSAN {
		tool := filepath.Join(dir, "..", "sango")
		root := filepath.Join("..", "..")
		if out, err := exec.Command("go", "build", "-C", root, "-o", tool, "./cmd/sango").CombinedOutput(); err != nil {
			return fmt.Errorf("sango: %w: %s", err, out)
		}
		cmd = exec.Command(tool, "install", pkg)
	}
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", pkg, err, out[max(len(out)-300, 0):])
	}
	return nil
}

// nameOf is the name of a package's binary.
func nameOf(pkg string) string {
	dir, _, _ := cutLast(pkg, "@")
	name := filepath.Base(dir)
	if len(name) > 1 && name[0] == 'v' && name[1] >= '0' && name[1] <= '9' {
		name = filepath.Base(filepath.Dir(dir))
	}
	return name
}
