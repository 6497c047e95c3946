// Package pathtest runs the tests of an example over each path that its connections can take.
package pathtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// Env is the environment variable that names the path to test. Without it all are tested.
const Env = "SANSOCK_PATH"

// The paths.
const (
	SAN      = "san"      // the emulated SAN within the process
	Across   = "across"   // the emulated SAN as between processes, for what goes to Listen
	Fallback = "fallback" // a dial that tries the SAN, and finds nobody there, for what goes to Listen
	TCP      = "tcp"      // no SAN
)

// Paths returns those that there are here.
func Paths() []string {
	if runtime.GOOS != "linux" {
		return []string{SAN, Fallback, TCP}
	}
	return []string{SAN, Across, Fallback, TCP}
}

// providers is SANNET_PROVIDERS for each path.
var providers = map[string]string{SAN: "emu", Across: "emu", Fallback: "emu", TCP: "none"}

// Main is the TestMain of an example. Each path has a process of its own, as the environment chooses it, and in each no
// goroutine may be left at the end.
func Main(m *testing.M, leaks ...goleak.Option) {
	if path := os.Getenv(Env); path != "" {
		if os.Getenv("SANNET_PROVIDERS") != providers[path] {
			os.Exit(run(path))
		}
		goleak.VerifyTestMain(counted{m}, leaks...)
		return
	}
	code := 0
	for _, path := range Paths() {
		fmt.Println("over", path)
		code = max(code, run(path))
	}
	os.Exit(code)
}

// counted fails a run in which TCP has won too often where the SAN was wanted.
type counted struct{ m *testing.M }

func (c counted) Run() int {
	code := c.m.Run()
	if lost, made := lost.Load(), made.Load(); lost > made/4 {
		fmt.Printf("%d of %d connections are over TCP, which was faster\n", lost, made)
		code = 1
	}
	return code
}

// made counts the connections that were checked, lost those over TCP that should not be.
var made, lost atomic.Int64

// Environ is what chooses the path in the environment of a test.
func Environ(path string) []string {
	return []string{Env + "=" + path, "SANNET_PROVIDERS=" + providers[path]}
}

// run runs this program over the path, and returns its exit code.
func run(path string) int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), Environ(path)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// Want is the Info, as a string, of a connection in this process that does not go to Listen.
func Want() string {
	if os.Getenv(Env) == TCP {
		return "tcp: " + sannet.ReasonDisabled.String()
	}
	return "san via emu"
}

// Check fails the test where c is not over the path that is wanted. On a busy host TCP may win a race now and then.
func Check(t testing.TB, c net.Conn) {
	t.Helper()
	info, ok := sannet.InfoOf(c)
	CheckInfo(t, info, ok)
}

// CheckInfo is Check for who has no more than what InfoOf has said.
func CheckInfo(t testing.TB, info sannet.Info, ok bool) {
	t.Helper()
	want := sannet.PathSAN
	if path := os.Getenv(Env); path == TCP || path == Fallback {
		want = sannet.PathTCP
	}
	made.Add(1)
	if ok && want == sannet.PathSAN &&
		(info.Reason == sannet.ReasonRaceLost || info.Reason == sannet.ReasonPlainClient) {
		lost.Add(1)
		return
	}
	if !ok || info.Path != want {
		t.Errorf("connection over %v, want %v", info, want)
	}
}

// Listen listens on a free port of this host until the end of the test, and checks what it accepts.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	var lc sannet.ListenConfig
	switch os.Getenv(Env) {
	case Fallback:
		lc.Switch = sanswitch.New(sanswitch.Config{})
		t.Cleanup(func() { lc.Switch.Close() })
	case Across:
		// A fabric of the listener's own: that of the process's default switch does not find it in the process.
		p, err := emu.New(emu.Config{Fabric: emu.SharedFabric("")})
		if err != nil {
			t.Fatal(err)
		}
		lc.Switch = sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
		t.Cleanup(func() { lc.Switch.Close() })
	}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &listener{l, t}
}

type listener struct {
	net.Listener
	t testing.TB
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		Check(l.t, c)
	}
	return c, err
}
