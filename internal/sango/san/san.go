//go:build linux

// Package san is the SAN as package net sees it in a program built by sango: connections and
// listeners below the level at which net makes its errors. It names no type of net in what it
// exports, as net imports it.
package san

import (
	"fmt"
	"os"
	"sync"

	"sansock/emu"
	"sansock/internal/stack"
	"sansock/provider"
	sanswitch "sansock/switch"
)

var openers = map[string]stack.Opener{
	"emu": func() (provider.Provider, error) { return emu.New(emu.Config{}) },
	"ofi": func() (provider.Provider, error) { return nil, fmt.Errorf("not in programs that sango builds") },
}

// state is what all connections of the process share.
type state struct {
	sw    *sanswitch.Switch
	off   bool  // there is no provider
	err   error // why providers that were asked for are missing
	trace *os.File
}

var process = sync.OnceValue(func() *state {
	ps, err := stack.Open(os.Getenv("SANNET_PROVIDERS"), []string{"emu"}, openers)
	s := &state{sw: sanswitch.New(sanswitch.Config{Providers: ps}), off: len(ps) == 0, err: err}
	if name := os.Getenv("SANGO_TRACE"); name != "" {
		s.trace, _ = os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
	return s
})

// Off tells that there is nothing to do here: no provider, and no trace to write.
func Off() bool {
	p := process()
	return p.off && p.trace == nil
}
