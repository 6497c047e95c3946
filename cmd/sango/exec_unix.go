//go:build unix

package main

import (
	"os"
	"syscall"
)

// become runs a program in the place of this one.
func become(file string, args []string) error { return syscall.Exec(file, args, os.Environ()) }
