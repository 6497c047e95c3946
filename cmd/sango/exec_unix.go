//go:build unix

package main

import (
	"os"
	"syscall"
)

// Signals that end the go command: those of a terminal, which it gets as well, and others.
var (
	terminal = []os.Signal{os.Interrupt, syscall.SIGQUIT}
	others   = []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
)

// become runs a program in the place of this one.
func become(file string, args []string) error { return syscall.Exec(file, args, os.Environ()) }
