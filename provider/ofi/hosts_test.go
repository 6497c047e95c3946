//go:build ofi && cgo && linux

package ofi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/session"
)

// TestTwoHosts has the two ends in processes and network namespaces of their own, joined by a cable of veth. The server
// echoes; one client finishes, one is killed, one finds no listener, and one no host.
func TestTwoHosts(t *testing.T) {
	if testFabric != fabricTCP {
		t.Skip("a Soft-RoCE device belongs to the first namespace")
	}
	const left, right = "sansock-ofi-left", "sansock-ofi-right"
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	if err := ip("netns", "add", left); err != nil {
		t.Skip("network namespaces are not permitted here: ", err)
	}
	t.Cleanup(func() { ip("netns", "del", left) })
	require.NoError(t, ip("netns", "add", right))
	t.Cleanup(func() { ip("netns", "del", right) })
	cable := []string{"link", "add", "sanleft", "netns", left, "type", "veth", "peer", "name", "sanright", "netns", right}
	if err := ip(cable...); err != nil {
		t.Skip("veth is not permitted here: ", err)
	}
	for _, h := range [][3]string{{left, "sanleft", "10.98.0.1/24"}, {right, "sanright", "10.98.0.2/24"}} {
		require.NoError(t, ip("-n", h[0], "address", "add", h[2], "dev", h[1]))
		require.NoError(t, ip("-n", h[0], "link", "set", h[1], "up"))
		require.NoError(t, ip("-n", h[0], "link", "set", "lo", "up"))
	}
	for _, h := range [][2]string{{left, "sanleft"}, {right, "sanright"}} {
		require.Eventually(t, func() bool {
			out, err := exec.Command("ip", "-n", h[0], "link", "show", h[1]).Output()
			return err == nil && bytes.Contains(out, []byte("state UP"))
		}, 20*time.Second, 10*time.Millisecond)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	host := func(ns, role string) *exec.Cmd {
		c := exec.Command("ip", "netns", "exec", ns, exe, "-test.run=^TestHost$", "-test.v")
		c.Env = append(os.Environ(), "OFI_TEST_HOST="+role)
		return c
	}
	server := host(right, "server")
	var log bytes.Buffer
	server.Stderr = &log
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	in, err := server.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	lines := bufio.NewScanner(out)
	var said []string
	await := func(what string) {
		t.Helper()
		for lines.Scan() {
			if said = append(said, lines.Text()); strings.Contains(lines.Text(), what) {
				return
			}
		}
		t.Fatalf("the server has not said %q: %q %s", what, said, log.Bytes())
	}
	await("listening")
	client := func(role string) {
		t.Helper()
		got, err := host(left, role).CombinedOutput()
		require.NoError(t, err, "%s", got)
		require.Contains(t, string(got), "--- PASS: TestHost", "%s", got)
	}
	client("client")
	await("served <nil>")
	client("no listener")
	client("no host")

	killed := host(left, "victim")
	pipe, err := killed.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, killed.Start())
	for scan := bufio.NewScanner(pipe); scan.Scan(); {
		if strings.Contains(scan.Text(), "talking") {
			break
		}
	}
	require.NoError(t, killed.Process.Kill()) // ip has become the program
	killed.Wait()
	await("served " + syscall.ECONNRESET.Error())
	in.Close()
	await("--- PASS: TestHost")
	require.NoError(t, server.Wait())
}

// TestHost is one of the hosts.
func TestHost(t *testing.T) {
	role := os.Getenv("OFI_TEST_HOST")
	if role == "" {
		t.Skip("run by TestTwoHosts")
	}
	p := opened(t)
	server := netip.MustParseAddrPort("10.98.0.2:7000")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dial := func(to netip.AddrPort) (*session.Conn, error) {
		ep, err := p.Dial(ctx, netip.AddrPort{}, to)
		if err != nil {
			return nil, err
		}
		return session.Negotiate(ctx, ep, session.Dialer, session.Config{})
	}
	switch role {
	case "server":
		l, err := p.Listen(server, 4)
		require.NoError(t, err)
		go func() {
			io.Copy(io.Discard, os.Stdin)
			l.Close()
		}()
		fmt.Println("listening")
		for {
			r, err := l.Accept()
			if err != nil {
				return
			}
			require.Equal(t, server, r.LocalAddr())
			ep, err := r.Accept(ctx)
			require.NoError(t, err)
			c, err := session.Negotiate(ctx, ep, session.Listener, session.Config{})
			require.NoError(t, err)
			buf := make([]byte, 256<<10)
			for err == nil {
				var n int
				if n, err = c.Read(buf); n > 0 {
					_, err = c.Write(buf[:n])
				}
			}
			if err == io.EOF {
				err = c.CloseWrite()
			}
			c.Close()
			fmt.Println("served", err)
		}
	case "client":
		c, err := dial(server)
		require.NoError(t, err)
		defer c.Close()
		data := bytes.Repeat([]byte("0123456789abcde"), 300_000)
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write(data)
			c.CloseWrite()
			wrote <- err
		}()
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.NoError(t, <-wrote)
		require.True(t, bytes.Equal(data, got))
	case "no listener":
		_, err := dial(netip.MustParseAddrPort("10.98.0.2:7001"))
		require.Equal(t, provider.StatusNoListener, provider.StatusOf(err))
	case "no host":
		_, err := dial(netip.MustParseAddrPort("10.98.0.77:7000"))
		require.Equal(t, provider.StatusUnreachable, provider.StatusOf(err))
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	case "victim":
		c, err := dial(server)
		require.NoError(t, err)
		_, err = c.Write([]byte("hello"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 5))
		require.NoError(t, err)
		fmt.Println("talking")
		io.Copy(io.Discard, c)
	default:
		t.Fatal(role)
	}
}

// TestWithoutLibrary runs where libfabric cannot be opened.
func TestWithoutLibrary(t *testing.T) {
	if os.Getenv("OFI_TEST_WITHOUT_LIBRARY") != "" {
		_, err := Open(Config{Fabric: testFabric})
		require.ErrorIs(t, err, provider.StatusUnsupported)
		require.ErrorContains(t, err, "libfabric.so.1")
		return
	}
	opened(t) // so that it is mapped
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	library := ""
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); strings.Contains(line, "libfabric.so") {
			library = f[len(f)-1]
		}
	}
	require.NotEmpty(t, library)
	exe, err := os.Executable()
	require.NoError(t, err)
	script := `mount --bind /dev/null "$1" || exit 77; exec "$2" -test.run='^TestWithoutLibrary$' -test.v`
	c := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", library, exe)
	c.Env = append(os.Environ(), "OFI_TEST_WITHOUT_LIBRARY=1")
	out, err := c.CombinedOutput()
	if c.ProcessState == nil || c.ProcessState.ExitCode() == 77 || bytes.Contains(out, []byte("unshare")) {
		t.Skipf("mounts are not permitted here: %v %s", err, out)
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestWithoutLibrary")
}
