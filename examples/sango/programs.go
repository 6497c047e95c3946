package main

import "strings"

// program is a set of commands that are run together. In arguments and files {1}, {2} .. stand
// for addresses of this host, each with a port of its own, {port1} .. for these ports, {dir} for
// a folder, and {web} for a file.
type program struct {
	name    string // for -only
	title   string
	install []string
	files   map[string]string
	servers [][]string
	wait    []string // addresses that are listened on once the servers are ready
	client  []string
	figures func(out string) ([]figure, error)
}

const vegeta = "github.com/tsenart/vegeta/v12@v12.13.0"

// attack is a client that asks for a page as often as it can.
var attack = []string{"sh", "-c", "echo GET http://{1}/ | {bin}/vegeta attack -rate=0 -max-workers=8 -workers=8 -duration=1s | " +
	"{bin}/vegeta report -type=json"}

func drive(part, at string) []string { return []string{"drive", part, at} }

var programs = []*program{
	{
		name: "vegeta", title: "vegeta v12.13.0, to net/http",
		servers: [][]string{drive("http-server", "{1}")}, wait: []string{"{1}"},
		client: attack, figures: vegetaFigures,
	},
	{
		name: "short", title: "net/http, a connection per request",
		servers: [][]string{drive("http-server", "{1}")}, wait: []string{"{1}"},
		client: drive("http-short", "{1}"), figures: driveFigures,
	},
	{
		name: "caddy", title: "Caddy v2.11.9, file server, from vegeta",
		install: []string{"github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"},
		files:   map[string]string{"index.html": strings.Repeat("0123456789", 10)},
		servers: [][]string{{"caddy", "file-server", "--listen", "{1}", "--root", "{dir}"}}, wait: []string{"{1}"},
		client: attack, figures: vegetaFigures,
	},
	{
		name: "caddy-proxy", title: "Caddy v2.11.9, reverse proxy to net/http, from vegeta",
		install: []string{"github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"},
		servers: [][]string{
			drive("http-server", "{2}"),
			{"caddy", "reverse-proxy", "--from", "http://{1}", "--to", "{2}"},
		},
		wait:   []string{"{1}", "{2}"},
		client: attack, figures: vegetaFigures,
	},
	{
		name: "caddy-reload", title: "Caddy v2.11.9, its configuration loaded anew all the time",
		install: []string{"github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"},
		files: map[string]string{"Caddyfile": "{\n\tadmin {2}\n}\nhttp://{1} {\n\trespond hello\n}\n",
			"other": "{\n\tadmin {2}\n}\nhttp://{1} {\n\trespond \"hello again\"\n}\n"},
		servers: [][]string{{"caddy", "run", "--adapter", "caddyfile", "--config", "{dir}/Caddyfile"}},
		wait:    []string{"{1}", "{2}"},
		client: []string{"sh", "-c", "(for i in 1 2 3; do sleep 0.2; " +
			"{bin}/caddy reload --address {2} --adapter caddyfile --config {dir}/other; sleep 0.2; " +
			"{bin}/caddy reload --address {2} --adapter caddyfile --config {dir}/Caddyfile; done) >/dev/null 2>&1 & " +
			strings.Replace(attack[2], "1s", "2s", 1) + "; wait"},
		figures: vegetaFigures,
	},
	{
		name: "nats", title: "nats-server v2.15.3, nats.go",
		install: []string{"github.com/nats-io/nats-server/v2@v2.15.3"},
		servers: [][]string{{"nats-server", "-a", "127.0.0.1", "-p", "{port1}"}}, wait: []string{"{1}"},
		client: drive("nats", "{1}"), figures: driveFigures,
	},
	{
		name: "nats-bench", title: "nats-server v2.15.3, nats bench",
		install: []string{"github.com/nats-io/nats-server/v2@v2.15.3", "github.com/nats-io/natscli/nats@v0.5.1"},
		servers: [][]string{
			{"nats-server", "-a", "127.0.0.1", "-p", "{port1}"},
			{"sh", "-c", "until {bin}/nats -s nats://{1} bench service serve --no-progress foo >/dev/null 2>&1; do sleep 0.1; done"},
		},
		wait:    []string{"{1}"},
		client:  []string{"sh", "-c", "sleep 0.5; exec {bin}/nats -s nats://{1} bench service request --msgs 5000 --no-progress foo"},
		figures: natsFigures,
	},
	{
		name: "coredns", title: "CoreDNS v1.15.0 over TCP, miekg/dns",
		install: []string{"github.com/coredns/coredns@v1.15.0"},
		files:   map[string]string{"Corefile": ".:{port1} {\n\tbind 127.0.0.1\n\thosts {\n\t\t10.0.0.1 host.example\n\t}\n}\n"},
		servers: [][]string{{"coredns", "-conf", "{dir}/Corefile"}}, wait: []string{"{1}"},
		client: drive("dns", "{1}"), figures: driveFigures,
	},
	{
		name: "prometheus", title: "Prometheus v0.316.0, scraping net/http every 100 ms",
		install: []string{"github.com/prometheus/prometheus/cmd/prometheus@v0.316.0"},
		files: map[string]string{"prometheus.yml": "global:\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\n" +
			"scrape_configs:\n- job_name: drive\n  static_configs:\n  - targets: ['{2}']\n"},
		servers: [][]string{drive("http-server", "{2}"), {"prometheus", "--config.file={dir}/prometheus.yml",
			"--storage.tsdb.path={dir}/data", "--web.listen-address={1}", "--log.level=error"}},
		wait:   []string{"{1}", "{2}"},
		client: drive("prometheus", "{1}"), figures: driveFigures,
	},
	{
		name: "grpc", title: "gRPC service, grpc-go v1.85.0 with its default dialer",
		servers: [][]string{drive("grpc-server", "{1}")}, wait: []string{"{1}"},
		client: drive("grpc", "{1}"), figures: driveFigures,
	},
	{
		name: "redis", title: "go-redis v9.23.0, redcon v1.6.4",
		servers: [][]string{drive("redis-server", "{1}")}, wait: []string{"{1}"},
		client: drive("redis", "{1}"), figures: driveFigures,
	},
}
