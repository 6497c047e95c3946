package emu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/emu/shm"
)

func TestPeers(t *testing.T) {
	own := func() uint32 { return 7 }
	for _, c := range []struct {
		list Peers
		who  shm.Peer
		want bool
	}{
		{"", shm.Peer{UID: 7}, true},
		{"", shm.Peer{UID: 8, GID: 7}, false},
		{"uid:8, gid:9", shm.Peer{UID: 8}, true},
		{"uid:8, gid:9", shm.Peer{UID: 9}, false},
		{"uid:8,gid:9", shm.Peer{UID: 1, GID: 9}, true},
		{"uid:8", shm.Peer{UID: 7}, true},
		{"none", shm.Peer{UID: 7}, false},
		{"none,uid:8", shm.Peer{UID: 8}, true},
		{"any", shm.Peer{UID: 1}, true},
	} {
		f, err := c.list.parse(own)
		require.NoError(t, err)
		require.Equal(t, c.want, f(c.who), "%q, %v", c.list, c.who)
	}
	for _, bad := range []Peers{"root", "uid", "uid:", "uid:-1", "uid:x", "any:1", "gid:4294967296"} {
		_, err := bad.parse(own)
		require.Error(t, err, bad)
	}
	_, err := New(Config{Policy: Policy{Accept: "nobody"}})
	if shm.Supported {
		require.ErrorContains(t, err, "nobody")
	}
}
