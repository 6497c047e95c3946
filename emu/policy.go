package emu

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"sansock/emu/shm"
)

// Policy says which other processes a provider meets, and where.
type Policy struct {
	// Accept says which processes of other users may connect to this one, Reach to which of them
	// this one may connect. Empty: what SANNET_ACCEPT and SANNET_REACH say, and else only those of
	// the same user.
	Accept, Reach Peers

	// Dir is a directory that containers on this host share, in which their processes meet. Empty:
	// what SANNET_DIR says, and else there is none, and processes meet that share a network
	// namespace. docs/containers.md has the rules.
	Dir string
}

// Peers is which processes of other users may take part: a list of uid:N, gid:N and any, separated
// by commas. Processes of the same user always may, unless the list is "none". A group is the one
// that the process has as its effective group.
//
// A user that the user namespace of this process does not have is never admitted, not even by any.
type Peers string

// Environment variables for what a Policy leaves empty.
const (
	acceptVar = "SANNET_ACCEPT" // Policy.Accept
	reachVar  = "SANNET_REACH"  // Policy.Reach
	dirVar    = "SANNET_DIR"    // Policy.Dir
)

// orEnv is s or, if that is empty, a variable of the environment.
func orEnv(s, name string) string {
	if s == "" {
		s = os.Getenv(name)
	}
	return s
}

// parse returns a function that tells who is in the list.
func (p Peers) parse(own func() uint32) (func(shm.Peer) bool, error) {
	uids, gids := map[uint32]bool{}, map[uint32]bool{}
	same, any := true, false
	for _, f := range strings.Split(string(p), ",") {
		kind, number, numbered := strings.Cut(strings.TrimSpace(f), ":")
		n, err := strconv.ParseUint(number, 10, 32)
		switch {
		case kind == "" && !numbered:
		case kind == "any" && !numbered:
			any = true
		case kind == "none" && !numbered:
			same = false
		case kind == "uid" && err == nil:
			uids[uint32(n)] = true
		case kind == "gid" && err == nil:
			gids[uint32(n)] = true
		default:
			return nil, fmt.Errorf("%q is no uid:N, gid:N, any or none", f)
		}
	}
	return func(p shm.Peer) bool {
		return any || same && p.UID == own() || uids[p.UID] || gids[p.GID]
	}, nil
}

// openNode makes p reach other processes.
func (p *Provider) openNode(c Policy) error {
	own := func() uint32 { return uint32(os.Geteuid()) }
	accept, err := Peers(orEnv(string(c.Accept), acceptVar)).parse(own)
	if err != nil {
		return fmt.Errorf("emu: who may connect: %w", err)
	}
	reach, err := Peers(orEnv(string(c.Reach), reachVar)).parse(own)
	if err != nil {
		return fmt.Errorf("emu: who may be reached: %w", err)
	}
	p.dir = orEnv(c.Dir, dirVar)
	p.node = shm.Open(shm.Config{
		Name: p.name, Space: p.fabric.name, Dir: p.dir, Accept: accept, Reach: reach,
	})
	return nil
}
