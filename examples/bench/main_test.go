package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// limit is how long a program may run in a test.
const limit = time.Minute

var exe string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		exe = filepath.Join(dir, "bench.exe")
		if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		code := m.Run()
		if err := goleak.Find(); code == 0 && err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
		return code
	}())
}

// command is the program, with nothing left in its temporary directory when the test ends.
func command(t *testing.T, args ...string) *exec.Cmd {
	tmp, err := os.MkdirTemp("", "b") // short, for the name of a unix socket
	require.NoError(t, err)
	t.Cleanup(func() {
		left, err := os.ReadDir(tmp)
		assert.NoError(t, err)
		assert.Empty(t, left)
		os.RemoveAll(tmp)
	})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "TMP="+tmp, "SANNET_PROVIDERS=")
	return cmd
}

// runToEnd runs the program to its end.
func runToEnd(t *testing.T, args ...string) (stdout, stderr string, code int) {
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if !errors.As(err, &ee) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// measured runs the program and returns its standard output and the report that it wrote.
func measured(t *testing.T, args ...string) (string, report) {
	file := filepath.Join(t.TempDir(), "out.json")
	stdout, stderr, code := runToEnd(t, append(args, "-json", file)...)
	require.Zero(t, code, stderr)
	assert.Empty(t, stderr) // no progress bar where there is no terminal
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(b, &r))
	return stdout, r
}

var quickWorkloads = []string{
	"roundtrip/64B", "roundtrip/64KiB", "sporadic/64B", "burst/64B", "stream/64B", "stream/64KiB", "setup", "http/100B/c1",
	"http/100B/c64", "http/1MiB/c1", "http/1MiB/c64", "writers/64B/1", "writers/64B/8", "writers/64KiB/1", "writers/64KiB/8",
	"active/2", "active/64", "slow/2", "stuck/2", "slow/64", "stuck/64", "idle/10", "idle/20",
}

// quickFlags are what makes quickWorkloads of all of them.
var quickFlags = []string{"-sizes", "64, 64k", "-conns", "2,64", "-writers", "1,8", "-idle", "10,20"}

// TestQuick measures everything in both modes.
func TestQuick(t *testing.T) {
	plots := filepath.Join(t.TempDir(), "new", "plots")
	stdout, r := measured(t, append(quickFlags, "-quick", "-time", "2ms", "-plot", plots)...)
	assert.Equal(t, 2, r.Rounds)
	assert.Equal(t, []mode{{"procs1", "one process"}, {"procs2", "two processes"}}, r.Modes)

	type key struct{ mode, workload, carrier string }
	var want, got []key
	for _, w := range quickWorkloads {
		for _, c := range carrierNames {
			want = append(want, key{"procs1", w, c})
		}
	}
	for _, w := range quickWorkloads {
		for _, c := range []string{"tcp", "unix", "sannet"} {
			want = append(want, key{"procs2", w, c})
		}
	}
	for _, res := range r.Results {
		got = append(got, key{res.Mode, res.Workload, res.Carrier})
		checkResult(t, res)
	}
	assert.Equal(t, want, got)
	for _, w := range quickWorkloads {
		assert.Contains(t, stdout, "\n"+w+" ")
	}
	assert.Contains(t, stdout, "one process: sannet went over san via emu")
	assert.Contains(t, stdout, "two processes: sannet went over ")

	for _, mode := range []string{"procs1", "procs2"} {
		for _, name := range []string{
			"roundtrip-time", "stream-rate", "stream-cpu", "writers-64B-rate", "writers-64KiB-rate", "active-rate", "slow-rate",
			"stuck-rate", "ratios",
		} {
			checkPlot(t, filepath.Join(plots, mode+"-"+name))
		}
	}
	assert.Contains(t, stdout, "40 plots in "+plots)
}

// checkResult sees that figures can be true.
func checkResult(t *testing.T, res result) {
	name := res.Mode + " " + res.Workload + " " + res.Carrier
	var connections int
	for path, n := range res.Paths {
		connections += n
		switch {
		case res.Carrier != "sannet":
			assert.Equal(t, res.Carrier, path, name)
		case res.Mode == "procs1":
			// On a machine that is busy enough the SAN may lose the race against TCP.
			assert.Regexp(t, `^(san via emu$|tcp: TCP was faster|tcp: SAN failed recently \(slower than TCP\))`, path, name)
		}
	}
	assert.Positive(t, connections, name)
	require.NotEmpty(t, res.Metrics, name)
	for _, f := range res.Metrics {
		assert.Len(t, f.Samples, 2, name)
		assert.LessOrEqual(t, f.Min, f.Q1, name)
		assert.LessOrEqual(t, f.Q1, f.Median, name)
		assert.LessOrEqual(t, f.Median, f.Q3, name)
		assert.LessOrEqual(t, f.Q3, f.Max, name)
		if family(res.Workload) == "idle" {
			continue // costs of which each may be nothing
		}
		if f.Name == "cpu" {
			assert.GreaterOrEqual(t, f.Min, 0.0, name) // in some systems it is counted in ticks
			continue
		}
		assert.Positive(t, f.Min, name)
		if assert.NotNil(t, f.Ratio, name) {
			assert.Positive(t, f.Ratio.Min, name)
			if res.Carrier == "tcp" {
				assert.Equal(t, summary{1, 1, 1, 1, 1}, *f.Ratio, name)
			}
		}
	}
}

func checkPlot(t *testing.T, name string) {
	b, err := os.ReadFile(name + ".svg")
	require.NoError(t, err)
	assert.Contains(t, string(b), "<svg")
	assert.Contains(t, string(b), "sannet</text>")
	f, err := os.Open(name + ".png")
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	colors := make(map[any]bool)
	for x := range img.Bounds().Dx() {
		for y := range img.Bounds().Dy() {
			colors[img.At(x, y)] = true
		}
	}
	for carrier, l := range looks {
		if carrier != "pipe" && carrier != "buffered" || !strings.Contains(name, "procs2") {
			assert.True(t, colors[l.color], "%s: nothing of %s", name, carrier)
		}
	}
}

// TestSANAlone: with -net san no connection is over TCP, also those of processes that measure for this one.
func TestSANAlone(t *testing.T) {
	_, r := measured(t, "-quick", "-time", "1ms", "-idle", "10", "-procs", "1", "-net", "san", "-over", "sannet", "-plot", "",
		"-run", "^(roundtrip/64B|stream/64B|http/100B/c64|active/64|idle/10|setup)$")
	require.Len(t, r.Results, 12)
	for _, res := range r.Results {
		want := []string{"tcp"}
		if res.Carrier == "sannet" {
			want = []string{"san via emu"}
		}
		for path := range res.Paths {
			assert.Contains(t, want, path, res.Workload)
		}
		if res.Workload == "idle/10" {
			assert.Equal(t, 2*(1+10), res.Paths[want[0]])
			if f, ok := r.find("procs1", "idle/10", res.Carrier, "goroutines"); assert.True(t, ok) {
				assert.Equal(t, []float64{1, 1}, f.Samples) // the server's that waits
			}
			if f, ok := r.find("procs1", "idle/10", "tcp", "descriptors"); runtime.GOOS == "linux" && assert.True(t, ok) {
				assert.Equal(t, []float64{2, 2}, f.Samples)
			}
		}
	}
}

// TestWithoutSAN: the path is told as it is.
func TestWithoutSAN(t *testing.T) {
	cmd := command(t, "-quick", "-time", "1ms", "-run", "^roundtrip/1B$", "-plot", "", "-touch")
	cmd.Env = append(cmd.Env, "SANNET_PROVIDERS=none")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, mode := range []string{"one process", "two processes"} {
		assert.Contains(t, string(out),
			mode+": sannet went over tcp: no SAN in use; so its figures are those of TCP, as chosen by sannet\n")
	}
	assert.Contains(t, string(out), "every cache line")
}

// server is the program with -serve.
func startServer(t *testing.T) (cmd *exec.Cmd, address string) {
	cmd = command(t, "-serve", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(strings.TrimPrefix(line, "serving "))
}

func TestRemote(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	cmd, address := startServer(t)
	plots := t.TempDir()
	stdout, r := measured(t, "-to", address, "-quick", "-time", "1ms", "-idle", "10", "-touch", "-plot", plots,
		"-run", "^(roundtrip/(1|64)B|stream/(64B|1KiB)|http/1MiB/c64|active/64|writers/64KiB/8|stuck/64|idle/10|setup)$")
	assert.Equal(t, []mode{{"remote", "peer at " + address}}, r.Modes)
	require.Len(t, r.Results, 20)
	for _, res := range r.Results {
		checkResult(t, res)
	}
	assert.Contains(t, stdout, "peer at "+address+": sannet went over ")
	checkFiles := func(ext string) {
		files, err := filepath.Glob(filepath.Join(plots, "remote-*."+ext))
		require.NoError(t, err)
		assert.Len(t, files, 4)
	}
	checkFiles("svg")
	checkFiles("png")

	// The same server takes one client after the other, and ends well.
	_, r = measured(t, "-to", address, "-quick", "-time", "1ms", "-plot", "", "-over", "tcp", "-run", "^setup$")
	assert.Len(t, r.Results, 1)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait())
}

// TestInterrupt: the program ends soon, says so, and leaves nothing behind.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	for _, run := range []string{"^roundtrip/1B$", "^idle"} {
		cmd := command(t, "-rounds", "1000", "-time", "50ms", "-run", run, "-plot", "")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		tmp := cmd.Env[len(cmd.Env)-2][len("TMP="):]
		require.Eventually(t, func() bool {
			dirs, err := os.ReadDir(tmp)
			return err == nil && len(dirs) > 1 // the sockets of both modes
		}, limit, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		assert.Error(t, cmd.Wait())
		assert.Equal(t, 1, cmd.ProcessState.ExitCode())
		assert.Contains(t, stderr.String(), "interrupted")
	}
}

func TestList(t *testing.T) {
	stdout, stderr, code := runToEnd(t, append(quickFlags, "-list")...)
	assert.Zero(t, code, stderr)
	var names []string
	for line := range strings.Lines(stdout) {
		names = append(names, strings.Fields(line)[0])
	}
	assert.Equal(t, quickWorkloads, names)
}

func TestHelp(t *testing.T) {
	_, stderr, code := runToEnd(t, "-h")
	assert.Zero(t, code)
	assert.Contains(t, stderr, "-rounds number")
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"-nosuch", "flag provided but not defined: -nosuch"},
		{"extra", `unexpected argument "extra"`},
		{"-run (", "missing closing )"},
		{"-over tcp,udp", `no carrier "udp", there are tcp, unix, pipe, buffered, sannet`},
		{"-over pipe -procs 2", "-over pipe and buffered need -procs 1"},
		{"-over unix -to localhost:1", "-over unix, pipe and buffered do not go with -to"},
		{"-over buffered -to localhost:1", "-over unix, pipe and buffered do not go with -to"},
		{"-over buffered -procs 2", "-over pipe and buffered need -procs 1"},
		{"-procs 3", `"3" is no number from 1 to 2`},
		{"-procs 1 -to localhost:1", "-procs does not go with -to"},
		{"-net udp", `-net must be tcp or san, not "udp"`},
		{"-rounds 0", "-rounds must be from 1 to 1000, not 0"},
		{"-time 1us", "-time must be from 1ms to 1m0s, not 1µs"},
		{"-time 5", `invalid value "5" for flag -time`},
		{"-sizes 4KB", `"4KB" is no size from 1 to 64MiB`},
		{"-sizes 1,", `"" is no size`},
		{"-sizes 65MiB", `"65MiB" is no size`},
		{"-conns 0", `"0" is no number from 1 to 100000`},
		{"-idle 0", `"0" is no number from 1 to 100000`},
		{"-writers 1025", `"1025" is no number from 1 to 1024`},
		{"-serve :0 -quick", "-serve goes with no other flag"},
		{"-serve localhost", "-serve: address localhost: missing port"},
		{"-serve=", "-serve: missing port"},
		{"-to localhost", "-to: address localhost: missing port"},
		{"-to :7700", "-to needs the server's host and port"},
	} {
		o, err := parse(strings.Fields(c.args), nil)
		assert.ErrorContains(t, err, c.want, c.args)
		assert.NotErrorIs(t, err, errHelp, o)
	}
	stdout, stderr, code := runToEnd(t, "-rounds", "many")
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `invalid value "many" for flag -rounds`)
	assert.Contains(t, stderr, "bench -h lists the flags")
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-quick", "-rounds", "7", "-over", "sannet,pipe", "-sizes", "1,4KiB,4k,1M,2b", "-conns", "8, 1,8",
		"-doc", "f.md", "-writers", "2,1"}, nil)
	require.NoError(t, err)
	assert.Equal(t, 7, o.rounds)
	assert.Equal(t, 4*time.Millisecond, o.time)
	assert.Equal(t, []string{"tcp", "pipe", "sannet"}, o.over)
	assert.Equal(t, []int{1, 4 << 10, 1 << 20, 2}, o.sizes)
	assert.Equal(t, []int{8, 1}, o.conns)
	assert.Equal(t, []int{2, 1}, o.writers)
	assert.Equal(t, []int{100}, o.idle)
	assert.Equal(t, "-quick -rounds 7 -over sannet,pipe -sizes 1,4KiB,4k,1M,2b -conns 8, 1,8 -writers 2,1", o.command)
	assert.False(t, o.remake)
}

// TestFailures: what fails does so before anything is measured, and says what it was.
func TestFailures(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	go func() { // a server of something else
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-run", "nothing"}, `-run "nothing" matches none of the workloads`},
		{[]string{"-to", closed.Addr().String()}, "connection refused"},
		{[]string{"-to", taken.Addr().String()}, "is no bench server"},
		{[]string{"-serve", taken.Addr().String()}, "address already in use"},
		{[]string{"-json", "no/such/file"}, "-json: open no/such/file"},
		{[]string{"-doc", "no/such/file", "-quick"}, "-doc: open no/such/file"},
		{[]string{"-doc", "no/such/file"}, "-doc: open no/such/file"},
		{[]string{"-cpuprofile", "no/such/file"}, "open no/such/file"},
		{[]string{"-procs", "2", "-net", "san", "-run", "^setup$", "-over", "sannet", "-time", "1ms", "-rounds", "1"}, ""},
	} {
		_, stderr, code := runToEnd(t, c.args...)
		if c.want == "" { // until the emulated SAN spans processes
			if code == 1 {
				assert.Contains(t, stderr, "setup over sannet, two processes: dial san ")
			}
			continue
		}
		assert.Equal(t, 1, code, c.args)
		assert.Contains(t, stderr, c.want)
	}
}
