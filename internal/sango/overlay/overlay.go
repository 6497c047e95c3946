// Package overlay makes an overlay for the go command that changes package net, and lays the
// library below it into the standard library, as packages under internal/sango.
package overlay

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sansock/internal/sango/patch"
)

// std has what is added to the standard library beside the library: a file of package net, what
// stands in for net below it, and what stands for the assembly.
//
//go:embed all:_std
var std embed.FS

// Base is the path, in the standard library, of everything that is laid into it.
const Base = "internal/sango"

// Config says what to make.
type Config struct {
	Dir          string // to write into
	GOROOT       string
	GOOS, GOARCH string
	Source       *Source
	Version      string            // of Go
	Other        map[string]string // another overlay, which is to hold as well
}

// Overlay is what was made.
type Overlay struct {
	File string // for -overlay
	Hash string // of everything that differs from the standard library
}

// maker makes one.
type maker struct {
	Config
	replace map[string]string
	content map[string][]byte // by path below GOROOT/src, what was written
	done    map[string]bool   // packages of the library
}

// Write makes an overlay.
func Write(c Config) (*Overlay, error) {
	if c.GOOS != "linux" {
		return nil, fmt.Errorf("programs for %s are not supported: only those for linux are", c.GOOS)
	}
	m := &maker{
		Config: c, replace: maps.Clone(c.Other),
		content: make(map[string][]byte), done: make(map[string]bool),
	}
	if m.replace == nil {
		m.replace = make(map[string]string)
	}
	if err := m.net(); err != nil {
		return nil, fmt.Errorf("%s is not supported: %w", c.Version, err)
	}
	if err := m.lay("internal/sango/san"); err != nil {
		return nil, err
	}
	return m.write()
}

// net patches package net.
func (m *maker) net() error {
	dir := filepath.Join(m.GOROOT, "src", "net")
	names, err := m.names(dir)
	if err != nil {
		return err
	}
	files, err := patch.Files(dir, m.GOOS, m.GOARCH, names, m.read)
	if err != nil {
		return err
	}
	changed, err := patch.Apply(files)
	if err != nil {
		return err
	}
	for name, text := range changed {
		m.content["net/"+name] = text
	}
	return m.add("net", "_std/shim")
}

// names are those of the files in a folder, with what the other overlay adds and takes away.
func (m *maker) names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	set := make(map[string]bool)
	for _, e := range entries {
		set[e.Name()] = true
	}
	for from, to := range m.Other {
		if filepath.Dir(from) == dir {
			set[filepath.Base(from)] = to != ""
		}
	}
	maps.DeleteFunc(set, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(set)), nil
}

// read reads a file through the other overlay.
func (m *maker) read(file string) ([]byte, error) {
	if to, ok := m.Other[file]; ok {
		file = to
	}
	return os.ReadFile(file)
}

// add adds the files of an embedded folder.
func (m *maker) add(to, dir string) error {
	entries, err := fs.ReadDir(std, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(std, path.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.content[path.Join(to, e.Name())] = text
	}
	return nil
}

// write writes everything, and the overlay's file.
func (m *maker) write() (*Overlay, error) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(m.content)) {
		text := m.content[name]
		fmt.Fprintf(h, "%s %d\n", name, len(text))
		h.Write(text)
		file := filepath.Join(m.Dir, "src", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, text, 0o666); err != nil {
			return nil, err
		}
		m.replace[filepath.Join(m.GOROOT, "src", filepath.FromSlash(name))] = file
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": m.replace}, "", "\t")
	if err != nil {
		return nil, err
	}
	o := &Overlay{File: filepath.Join(m.Dir, "overlay.json"), Hash: hex.EncodeToString(h.Sum(nil))[:12]}
	return o, os.WriteFile(o.File, text, 0o666)
}

// Read reads the file of an overlay. Paths in it are relative to dir.
func Read(file, dir string) (map[string]string, error) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var o struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	absolute := make(map[string]string)
	for from, to := range o.Replace {
		if to != "" && !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		if !filepath.IsAbs(from) {
			from = filepath.Join(dir, from)
		}
		absolute[filepath.Clean(from)] = to
	}
	return absolute, nil
}

// place is where a package goes to, "" if it stays what it is.
func (m *maker) place(pkg string) string {
	if to, ok := needs[pkg]; ok {
		return path.Join(Base, to)
	}
	if pkg == "net" {
		return path.Join(Base, "net")
	}
	if rest, ok := strings.CutPrefix(pkg, m.Source.Library.Path+"/"); ok {
		rest = strings.TrimPrefix(rest, "internal/")
		return path.Join(Base, strings.TrimPrefix(rest, "sango/"))
	}
	return ""
}
