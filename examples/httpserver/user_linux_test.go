package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOtherUser: a client of another user is served over TCP, and told why.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to be another user")
	}
	require.NoError(t, os.Chmod(filepath.Dir(exe), 0o755))
	s := startServer(t, "-requests", "3")
	cmd := exec.CommandContext(t.Context(), exe, "-mode", "client", "-addr", s.addr(), "-requests", "3")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		s.cmd.Process.Kill()
		t.Skip("other users cannot reach the program: ", err)
	}
	require.NoError(t, err, string(out))
	assert.Equal(t, 3, strings.Count(string(out), "200 OK"), string(out))
	assert.Equal(t, 3, strings.Count(string(out), "over tcp: listener on the SAN belongs to another user"), string(out))
	assert.Equal(t, "served 3 requests\n", s.end())
}
