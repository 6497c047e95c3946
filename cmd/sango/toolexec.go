package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sansock/internal/sango/overlay"
)

// linkInfo is what a binary is to say of itself.
type linkInfo struct {
	Overlay string // hash
	Go      string
	Modules []overlay.Module
	Next    []string // another program for -toolexec
}

// toolexec runs a tool of the go command: args are the file with a linkInfo, the tool, and its
// arguments. Before it links a program, what that says of its modules gets those of the library
// as well, which the go command does not know of.
func toolexec(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("toolexec is for the go command")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var l linkInfo
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	tool := args[1:]
	if filepath.Base(tool[0]) == "link" {
		if i := slices.Index(tool, "-importcfg"); i >= 0 && i+1 < len(tool) {
			if err := l.describe(tool[i+1]); err != nil {
				return err
			}
		}
	}
	tool = append(slices.Clone(l.Next), tool...)
	file, err := exec.LookPath(tool[0])
	if err != nil {
		return err
	}
	return become(file, tool)
}

// Around what a binary says of its modules the go command puts 16 bytes.
const frame = 16

// describe adds modules to the file that tells the linker what to link.
func (l *linkInfo) describe(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	hasNet, hasSAN := false, false
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		hasNet = hasNet || strings.HasPrefix(line, "packagefile net=")
		hasSAN = hasSAN || strings.HasPrefix(line, "packagefile "+overlay.Base+"/san=")
		quoted, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "modinfo ")
		if ok && hasNetIn(string(text)) {
			info, err := strconv.Unquote(quoted)
			if err != nil || len(info) < 2*frame {
				return fmt.Errorf("%s: what is this: %.60s", file, line)
			}
			info = info[:frame] + l.add(info[frame:len(info)-frame]) + info[len(info)-frame:]
			line = fmt.Sprintf("modinfo %q\n", info)
		}
		out.WriteString(line)
	}
	if hasNet && !hasSAN {
		return fmt.Errorf("the go command uses another toolchain than %s here: set GOTOOLCHAIN to that", l.Go)
	}
	return os.WriteFile(file, out.Bytes(), 0o666)
}

func hasNetIn(importcfg string) bool { return strings.Contains(importcfg, "\npackagefile net=") }

// The settings that a binary has.
const (
	settingLibrary = "sango.library"
	settingPatch   = "sango.patch"
)

// add adds to what a binary says of its modules.
func (l *linkInfo) add(info string) string {
	var before, settings []string
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "build\t") {
			settings = append(settings, line)
		} else {
			before = append(before, line)
		}
	}
	for _, m := range l.Modules {
		line := "dep\t" + m.Path + "\t" + m.Version + "\t" + m.Sum + "\n"
		if !slices.Contains(before, line) {
			before = append(before, line)
		}
	}
	lib := l.Modules[len(l.Modules)-1]
	settings = append(settings, fmt.Sprintf("build\t%s=%s@%s\n", settingLibrary, lib.Path, lib.Version),
		fmt.Sprintf("build\t%s=%s\n", settingPatch, l.Overlay))
	return strings.Join(before, "") + strings.Join(settings, "")
}
