//go:build !linux

package hostaddr

import "net/netip"

// watch cannot watch on this system.
type watch struct{}

func (watch) generation() (uint64, bool) { return 0, false }

// listFiles knows no files.
func listFiles() []netip.Addr { return nil }
