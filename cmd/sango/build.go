package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"sansock/internal/sango/overlay"
)

// build runs the go command with the overlay.
func build(name string, args []string) error {
	a, err := parse(name, args)
	if err != nil {
		return err
	}
	t, err := find(a.dir)
	if err != nil {
		return err
	}
	a.fromEnv(t.GOFLAGS)
	dir, err := os.MkdirTemp("", "sango-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := prepare(t, a, dir)
	if err != nil {
		return err
	}
	full := append([]string{name}, a.first...)
	full = append(full, b.flags...)
	if name == "test" {
		if err := vet(t, a); err != nil {
			return err
		}
		full = append(full, "-vet=off")
	}
	return run(t, append(full, a.rest...))
}

// prepared is what the go command needs.
type prepared struct {
	flags   []string
	overlay *overlay.Overlay
}

// prepare writes the overlay to dir.
func prepare(t *toolchain, a *arguments, dir string) (*prepared, error) {
	src, err := overlay.Locate("go", t.GOMODCACHE)
	if err != nil {
		return nil, err
	}
	c := overlay.Config{
		Dir: dir, GOROOT: t.GOROOT, GOOS: t.GOOS, GOARCH: t.GOARCH, Source: src, Version: t.GOVERSION,
	}
	if a.overlay != "" {
		at, err := filepath.Abs(a.dir)
		if err != nil {
			return nil, err
		}
		if c.Other, err = overlay.Read(a.overlay, at); err != nil {
			return nil, err
		}
	}
	o, err := overlay.Write(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := linkInfo{
		Overlay: o.Hash, Go: t.GOVERSION,
		Next: strings.Fields(a.toolexec), Modules: append(src.Needs, src.Library),
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	link := filepath.Join(dir, "link.json")
	if err := os.WriteFile(link, text, 0o666); err != nil {
		return nil, err
	}
	for _, s := range []string{self, link} {
		if strings.ContainsAny(s, "'\"\n") {
			return nil, fmt.Errorf("the go command cannot take a path with quotes: %s", s)
		}
	}
	return &prepared{overlay: o, flags: []string{
		"-overlay=" + o.File, fmt.Sprintf("-toolexec='%s' toolexec '%s'", self, link)}}, nil
}

// run runs the go command, which gets the signals that this process gets.
func run(t *toolchain, args []string) error {
	cmd := exec.Command(t.Cmd, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = t.env()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, append(terminal, others...)...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return err
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case s := <-signals:
				if !slices.Contains(terminal, s) {
					cmd.Process.Signal(s)
				}
			case <-over:
				return
			}
		}
	}()
	return cmd.Wait()
}
