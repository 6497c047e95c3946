//go:build linux

package san

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	sanswitch "sansock/switch"
)

// note writes a line about a connection or listener to the file that SANGO_TRACE names.
func (s *state) note(what string, local, remote netip.AddrPort, r sanswitch.Route) {
	if s.trace == nil {
		return
	}
	path := r.Path.String()
	if r.Path == sanswitch.PathSAN {
		path += " via " + r.Provider
	} else {
		path += ": " + r.Reason.String()
		if r.Peer != sanswitch.ReasonNone {
			path += "; peer: " + r.Peer.String()
		}
		if err := r.Err; err != nil {
			path += fmt.Sprintf(" (%v)", err)
		} else if s.err != nil {
			path += fmt.Sprintf(" (%v)", s.err)
		}
	}
	s.line(what, local, remote, path)
}

// line writes a line.
func (s *state) line(what string, local, remote netip.AddrPort, path string) {
	to := ""
	if remote.IsValid() {
		to = " " + remote.String()
	}
	// One write, so that the lines of several processes do not mix.
	now := time.Now().Format("15:04:05.000000")
	fmt.Fprintf(s.trace, "%s %d %s %s%s %s\n", now, os.Getpid(), what, local, to, path)
}

// Plain notes a connection that net makes by itself, without asking for the SAN, and why.
func Plain(what string, local, remote netip.AddrPort, why string) {
	if s := process(); s.trace != nil {
		s.line(what, local, remote, "tcp: "+why)
	}
}

// Accepted notes a connection that was accepted over TCP.
func Accepted(local, remote netip.AddrPort) {
	plain := sanswitch.Route{Path: sanswitch.PathTCP, Reason: sanswitch.ReasonPlainClient}
	process().note("accept", local, remote, plain)
}

// Tracing tells that there is a file to note things in.
func Tracing() bool { return process().trace != nil }
