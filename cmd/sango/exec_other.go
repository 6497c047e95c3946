//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// Signals that end the go command: those of a terminal, which it gets as well, and others.
var (
	terminal = []os.Signal{os.Interrupt}
	others   = []os.Signal{syscall.SIGTERM}
)

// become runs a program, and ends as it does.
func become(file string, args []string) error {
	cmd := exec.Command(file, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
