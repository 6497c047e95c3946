package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sansock/examples/internal/pathtest"
)

// suite is a part of the tests of this repository, which has a program run.
type suite struct {
	program  string
	covers   string
	dir      string   // of the package, below the root of the repository
	tests    string   // regular expression, "" for all
	versions []string // modules, or commands that print the version
	paths    []labelled
	byEnv    bool // pathtest chooses the path by the environment; else it is the name of the last subtest
}

// labelled is a path with its name in the table.
type labelled struct{ path, label string }

const (
	oneProcess   = "SAN, one process"
	asTwo        = "SAN, as between processes"
	twoProcesses = "SAN, two processes"
	fallback     = "fallback to TCP"
	plainTCP     = "TCP alone"
)

var (
	// examplePaths are those of package pathtest.
	examplePaths = []labelled{{pathtest.SAN, oneProcess}, {pathtest.Across, asTwo}, {pathtest.Fallback, fallback}, {pathtest.TCP, plainTCP}}
	proxyPaths   = []labelled{{"san", oneProcess}, {"across", twoProcesses}, {"tcp", plainTCP}}
	likePaths    = []labelled{{"san", oneProcess}, {"across", twoProcesses}, {"fallback", fallback}}
	netPaths     = []labelled{{"san", oneProcess}, {"shm", asTwo}, {"fallback", fallback}}
)

func example(program, covers, dir string, versions ...string) suite {
	return suite{program: program, covers: covers, dir: "examples/" + dir, versions: versions, paths: examplePaths, byEnv: true}
}

// suites are in the order of the table.
var suites = []suite{
	{program: "package net", covers: "every case of a suite gives the same results, errors and order of events as a `*net.TCPConn`",
		dir: "sannet", tests: "^TestLikeTCP$", versions: []string{"go"}, paths: likePaths},
	{program: "nettest", covers: "the suite that every `net.Conn` has to pass",
		dir: "sannet", tests: "^TestNettest$", versions: []string{"golang.org/x/net"}, paths: netPaths},
	{program: "net/http", covers: "keep-alive, large bodies, streaming, hijacking, timeouts, shutdown",
		dir: "sannet", tests: "^TestHTTP", versions: []string{"go"}, paths: netPaths},
	example("crypto/tls and HTTP/2", "client certificates, TLS 1.2 and 1.3, truncation, deadlines, HTTP/2", "tls", "go"),
	example("gRPC", "unary and streaming calls, deadlines, keep-alive, reconnection", "grpc", "google.golang.org/grpc"),
	example("WebSocket", "messages of all sizes, pings, timeouts, closing", "websocket", "github.com/coder/websocket"),
	example("Redis", "client and server: commands, pipelines, a pool, subscriptions, timeouts, restart", "redis",
		"github.com/redis/go-redis/v9", "github.com/tidwall/redcon"),
	example("NATS", "server and clients: messages, requests, reconnection, pings", "nats",
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go"),
	example("database/sql", "pgx and a PostgreSQL server: large values, transactions, cancellation, notifications", "sql",
		"github.com/jackc/pgx/v5", "postgres"),
	example("SSH", "sessions beside each other, strangers, hang-up, OpenSSH's client", "ssh", "golang.org/x/crypto", "ssh"),
	example("fasthttp", "bodies, streams, limits, timeouts, many connections", "fasthttp", "github.com/valyala/fasthttp"),
	example("yamux", "hundreds of streams, a slow one, loss, keep-alive", "yamux", "github.com/hashicorp/yamux"),
	{program: "curl", covers: "through examples/proxy at both ends", dir: "examples/proxy", tests: "^TestCurl$",
		versions: []string{"curl"}, paths: proxyPaths},
	{program: "redis-server, redis-cli and redis-benchmark", covers: "through examples/proxy at both ends", dir: "examples/proxy",
		tests: "^TestRedis$", versions: []string{"redis-server"}, paths: proxyPaths},
}

// row is a line of the table.
type row struct {
	suite   suite
	version string
	label   string
	outcome
}

// run runs the suite over each of its paths.
func (s suite) run(root string) (rows []row) {
	dir := filepath.Join(root, s.dir)
	version := s.version(dir)
	if s.byEnv {
		for _, p := range s.paths {
			o := goTest(dir, s.tests, pathtest.Environ(p.path)).all()
			rows = append(rows, row{s, version, p.label, o})
		}
		return rows
	}
	es := goTest(dir, s.tests, nil)
	for _, p := range s.paths {
		rows = append(rows, row{s, version, p.label, es.under(p.path)})
	}
	return rows
}

// goTest runs tests.
func goTest(dir, tests string, env []string) events {
	args := []string{"test", "-json", "-count=1", "-timeout=5m"}
	if tests != "" {
		args = append(args, "-run", tests)
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	es := parse(bytes.NewReader(out))
	if err != nil && !es.failed() {
		es = append(es, event{Action: "fail", Test: err.Error()})
	}
	return es
}

// version is what the suite's program is.
func (s suite) version(dir string) string {
	var found []string
	for _, v := range s.versions {
		var text string
		switch {
		case v == "go":
			text = command(dir, "go", "env", "GOVERSION")
		case strings.Contains(v, "/"):
			text = command(dir, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}", v)
		case v == "ssh":
			text, _, _ = strings.Cut(command(dir, "ssh", "-V"), ",")
		case v == "postgres":
			if servers, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(servers) > 0 {
				text = "PostgreSQL " + number.FindString(command(dir, servers[len(servers)-1], "--version"))
			}
		default:
			text = v + " " + number.FindString(command(dir, v, "--version"))
		}
		if text = strings.TrimSpace(text); text != "" {
			found = append(found, text)
		}
	}
	return strings.Join(found, ", ")
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

// command is the output of a command, or nothing.
func command(dir, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
