package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limit is how long a program may run in a test.
const limit = time.Minute

var exe string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "httpserver")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		exe = filepath.Join(dir, "httpserver.exe")
		if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// runToEnd runs the program to its end.
func runToEnd(t *testing.T, args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if !errors.As(err, &ee) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// server is the program as a server.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	stdout *bufio.Reader
	stderr bytes.Buffer
}

func startServer(t *testing.T, args ...string) *server {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	s := &server{t: t, cmd: exec.CommandContext(ctx, exe, append([]string{"-mode", "server"}, args...)...)}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	s.stdout = bufio.NewReader(out)
	line, err := s.stdout.ReadString('\n')
	require.NoError(t, err)
	s.url = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(line, "serving ")), "/")
	return s
}

func (s *server) addr() string { return s.url[strings.Index(s.url, "//")+2:] }

// end waits for the program to end by itself and without an error, and returns the rest of its output.
func (s *server) end() string {
	rest, err := io.ReadAll(s.stdout)
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Wait(), s.stderr.String())
	return string(rest)
}

func TestBoth(t *testing.T) {
	for _, c := range []struct {
		name      string
		providers string
		args      []string
		want      []string
	}{
		{"SAN", "emu", nil, []string{"http://", "HTTP/1.1, 200 OK", "over san via emu"}},
		{"SAN, HTTP/2", "emu", []string{"-tls"}, []string{"https://", "HTTP/2.0, 200 OK", "over san via emu"}},
		{"SAN alone", "emu", []string{"-net", "san"}, []string{"http://", "HTTP/1.1, 200 OK", "over san via emu"}},
		{"TCP", "none", nil, []string{"http://", "HTTP/1.1, 200 OK", "over tcp: no SAN in use"}},
		{"TCP, HTTP/2", "none", []string{"-tls"}, []string{"https://", "HTTP/2.0, 200 OK", "over tcp: no SAN in use"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("SANNET_PROVIDERS", c.providers)
			stdout, stderr, code := runToEnd(t, append(c.args, "-requests", "22")...)
			require.Zero(t, code, stderr)
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			require.Len(t, lines, 24)
			assert.Equal(t, "served 22 requests", lines[23])
			for _, line := range lines[1:23] {
				for _, want := range c.want {
					assert.Contains(t, line, want)
				}
			}
		})
	}
}

func TestServerAndClient(t *testing.T) {
	cert := filepath.Join(t.TempDir(), "cert.pem")
	for _, tls := range [][]string{nil, {"-tls", "-cert", cert}} {
		s := startServer(t, append(tls, "-requests", "5")...)
		stdout, stderr, code := runToEnd(t, append(tls, "-mode", "client", "-addr", s.addr(), "-requests", "5")...)
		assert.Zero(t, code, stderr)
		assert.Equal(t, 5, strings.Count(stdout, "200 OK"))
		assert.Equal(t, 5, strings.Count(stdout, "over san via emu"), stdout)
		assert.Equal(t, "served 5 requests\n", s.end())
	}
}

// TestPlainClient: a client that knows nothing of SANs.
func TestPlainClient(t *testing.T) {
	s := startServer(t, "-requests", "2")
	r, err := http.Get(s.url + "/some/path")
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	r.Body.Close()
	require.NoError(t, err)
	assert.Equal(t, "GET /some/path over tcp: client chose TCP\n", string(b))
	c, err := net.Dial("tcp", s.addr())
	require.NoError(t, err)
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	b, err = io.ReadAll(c)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(b), "HTTP/1.0 200 OK\r\n"), string(b))
	http.DefaultClient.CloseIdleConnections()
	assert.Equal(t, "served 2 requests\n", s.end())
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	cert := filepath.Join(t.TempDir(), "cert.pem")
	s := startServer(t, "-tls", "-cert", cert, "-requests", "1")
	out, err := exec.Command(curl, "--noproxy", "*", "--silent", "--show-error", "--max-time", "30", "--cacert", cert,
		s.url+"/curl").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "GET /curl over tcp: client chose TCP\n", string(out))
	assert.Equal(t, "served 1 requests\n", s.end())
}

// TestSignals: the server finishes the request that is under way, and ends.
func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := startServer(t)
		c, err := net.Dial("tcp", s.addr())
		require.NoError(t, err)
		defer c.Close()
		io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
		br := bufio.NewReader(c)
		line, err := br.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
		require.NoError(t, s.cmd.Process.Signal(sig))
		io.WriteString(c, "0123456789")
		rest, err := io.ReadAll(br)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(rest), "\r\n\r\n0123456789"), string(rest))
		assert.Equal(t, "served 1 requests\n", s.end())
	}
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"-nosuch", "flag provided but not defined: -nosuch"},
		{"-mode spectator", `-mode must be server, client or both, not "spectator"`},
		{"-net udp", `-net must be tcp or san, not "udp"`},
		{"-requests -1", "-requests must not be negative"},
		{"-requests many", `invalid value "many"`},
		{"-addr localhost", "-addr: address localhost: missing port in address"},
		{"-mode client", "-mode client needs -addr"},
		{"-cert x", "-cert needs -tls"},
		{"-mode client -addr localhost:1 -tls", "needs -cert"},
		{"extra", `unexpected argument "extra"`},
	} {
		stdout, stderr, code := runToEnd(t, strings.Fields(c.args)...)
		assert.Equal(t, 2, code, c.args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, c.want)
		assert.Contains(t, stderr, "-requests number")
	}
}

func TestFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, stderr, code := runToEnd(t, "-mode", "server", "-addr", l.Addr().String())
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "address already in use")
	l.Close()
	_, stderr, code = runToEnd(t, "-mode", "client", "-addr", l.Addr().String())
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "connection refused")
	_, stderr, code = runToEnd(t, "-mode", "client", "-addr", l.Addr().String(), "-tls", "-cert", t.TempDir()+"/nosuch")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "no such file")
}

// TestCertificate: clients verify it by name and by address.
func TestCertificate(t *testing.T) {
	cert, err := options{tls: true}.certificate(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "192.0.2.1"} {
		_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		assert.NoError(t, err, name)
	}
	none, err := options{}.certificate(nil)
	assert.NoError(t, err)
	assert.Equal(t, (*tls.Certificate)(nil), none)
}
