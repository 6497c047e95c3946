//go:build linux

// Package san is the SAN as package net sees it in a program built by sango: connections and
// listeners below the level at which net makes its errors. It names no type of net in what it
// exports, as net imports it.
package san

import (
	"errors"
	"os"
	"sync"

	"sansock/emu"
	"sansock/internal/bubble"
	"sansock/internal/hostaddr"
	"sansock/internal/stack"
	"sansock/provider"
	sanswitch "sansock/switch"
)

var openers = stack.Openers{
	"emu": func() (provider.Provider, error) {
		return emu.New(emu.Config{Prefixes: hostaddr.Prefixes})
	},
	"ofi": func() (provider.Provider, error) { return nil, errors.New("not in programs that sango builds") },
}

// state is what all connections of the process share.
type state struct {
	sw    *sanswitch.Switch
	off   bool  // there is no provider
	err   error // why providers that were asked for are missing
	trace *os.File
}

var process = sync.OnceValue(func() *state {
	ps, err := stack.Usable(openers.Open(os.Getenv(stack.Env), []string{"emu"}))
	s := &state{sw: sanswitch.New(sanswitch.Config{Providers: ps}), off: len(ps) == 0, err: err}
	if name := os.Getenv("SANGO_TRACE"); name != "" {
		s.trace, _ = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
	return s
})

// Off tells that there is nothing to do here: no provider, and no trace to write. Nor is there a
// SAN in a bubble of testing/synctest, which what runs in it must not leave.
func Off() bool {
	if bubble.ID() != 0 {
		return true
	}
	p := process()
	return p.off && p.trace == nil
}
