package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// env writes the overlay to a folder that stays, and prints what sets the go command up for it.
func env(args []string) error {
	fs := flag.NewFlagSet("sango env", flag.ContinueOnError)
	dir := fs.String("dir", "", "the folder to write to (default: sango/overlay in the build cache)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	t, err := find("")
	if err != nil {
		return err
	}
	a := &arguments{}
	a.fromEnv(t.GOFLAGS)
	if *dir == "" {
		*dir = filepath.Join(t.GOCACHE, "sango", "overlay")
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return err
	}
	b, err := prepare(t, a, *dir)
	if err != nil {
		return err
	}
	fmt.Printf("GOROOT='%s'\nSANGO_OVERLAY='%s'\nSANGO_PATCH='%s'\n",
		t.GOROOT, b.overlay.File, b.overlay.Hash)
	fmt.Printf("GOFLAGS='%s'\n", b.flags[0])
	return nil
}
