package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"sansock/examples/internal/pathtest"
	"sansock/sannet"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Equal(t, "path: "+pathtest.Want()+"\nwhoami: alice\ncat: 1000000 bytes there and back\n", out.String())
}

// start serves, and returns the address and what a client needs.
func start(t *testing.T) (addr string, config *ssh.ClientConfig) {
	host, err := newKey()
	require.NoError(t, err)
	user, err := newKey()
	require.NoError(t, err)
	l := pathtest.Listen(t)
	served := make(chan error, 1)
	go func() { served <- serve(l, serverConfig(host, user.PublicKey())) }()
	t.Cleanup(func() {
		l.Close()
		assert.NoError(t, <-served)
	})
	return l.Addr().String(), &ssh.ClientConfig{
		User: "bob", Auth: []ssh.AuthMethod{ssh.PublicKeys(user)}, HostKeyCallback: ssh.FixedHostKey(host.PublicKey()),
	}
}

func connect(t *testing.T, addr string, config *ssh.ClientConfig) *ssh.Client {
	c, info, err := dial(addr, config)
	require.NoError(t, err)
	pathtest.CheckInfo(t, info, true)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSessions: many at a time over one connection.
func TestSessions(t *testing.T) {
	addr, config := start(t)
	c := connect(t, addr, config)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			s, err := c.NewSession()
			if !assert.NoError(t, err) {
				return
			}
			sent := bytes.Repeat([]byte{byte(i)}, 1<<20)
			s.Stdin = bytes.NewReader(sent)
			got, err := s.Output("cat")
			assert.NoError(t, err)
			assert.True(t, bytes.Equal(sent, got))
		})
	}
	wg.Wait()
	s, err := c.NewSession()
	require.NoError(t, err)
	out, err := s.CombinedOutput("nosuch")
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 127, exit.ExitStatus())
	assert.Equal(t, "nosuch: not found\n", string(out))
}

func TestStranger(t *testing.T) {
	addr, config := start(t)
	key, err := newKey()
	require.NoError(t, err)
	stranger := *config
	stranger.Auth = []ssh.AuthMethod{ssh.PublicKeys(key)}
	_, _, err = dial(addr, &stranger)
	assert.ErrorContains(t, err, "unable to authenticate")
	stranger = *config
	stranger.HostKeyCallback = ssh.FixedHostKey(key.PublicKey())
	_, _, err = dial(addr, &stranger)
	assert.ErrorContains(t, err, "host key mismatch")
	c, err := sannet.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	_, err = io.ReadAll(c)
	assert.NoError(t, err, "the server hangs up")
}

// TestHangUp: a session that waits ends when the connection does.
func TestHangUp(t *testing.T) {
	addr, config := start(t)
	c := connect(t, addr, config)
	s, err := c.NewSession()
	require.NoError(t, err)
	in, err := s.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	require.NoError(t, s.Start("cat"))
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	c.Close()
	assert.Error(t, <-done)
	assert.ErrorIs(t, c.Wait(), net.ErrClosed)
}

// TestOpenSSH: the client that everybody has comes over TCP, to the same port.
func TestOpenSSH(t *testing.T) {
	client, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("ssh is not installed")
	}
	host, err := newKey()
	require.NoError(t, err)
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput()
	if err != nil {
		t.Skipf("ssh-keygen: %v: %s", err, out)
	}
	text, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	public, _, _, _, err := ssh.ParseAuthorizedKey(text)
	require.NoError(t, err)
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(l, serverConfig(host, public)) }()
	defer func() {
		l.Close()
		assert.NoError(t, <-served)
	}()
	known := filepath.Join(dir, "known")
	port := l.Addr().(*net.TCPAddr).Port
	line := fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(host.PublicKey()))
	require.NoError(t, os.WriteFile(known, []byte(line), 0o600))
	run := func(command string, stdin []byte) string {
		cmd := exec.CommandContext(t.Context(), client, "-F", "none", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile="+known,
			"-o", "IdentitiesOnly=yes", "-o", "ConnectTimeout=30", "-i", key, "-p", fmt.Sprint(port), "carol@127.0.0.1", command)
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Equal(t, "carol\n", run("whoami", nil))
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	assert.True(t, string(sent) == run("cat", sent))
}
