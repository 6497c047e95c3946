// Sango builds programs of other people twice, with go and with sango, runs them against each
// other's copies, and writes what comes of it to docs/sango.md: whether they work, how many of
// their connections went over the SAN, and the ratio to TCP.
//
//	go run . [-rounds 5] [-only caddy,nats] [-bin folder] [-doc ../../docs/sango.md]
//
// Programs are built into the folder of -bin, and those that are there already are used: building
// them takes many minutes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each is measured, over each path in turn")
	only := flag.String("only", "", "names of programs to run, with commas; all by default")
	bin := flag.String("bin", filepath.Join(os.TempDir(), "sango-programs"), "folder for the programs")
	doc := flag.String("doc", "", "file to write the table to, below its last heading")
	flag.Parse()
	if err := run(*rounds, *only, *bin, *doc); err != nil {
		fmt.Fprintln(os.Stderr, "sango:", err)
		os.Exit(1)
	}
}

func run(rounds int, only, bin, doc string) error {
	var rows []string
	for _, p := range programs {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		if err := p.build(bin); err != nil {
			rows = append(rows, fmt.Sprintf("| %s | not built: %s | | | | | |", p.title, oneLine(err)))
			fmt.Println(rows[len(rows)-1])
			continue
		}
		for _, row := range p.measure(bin, rounds) {
			fmt.Println(row)
			rows = append(rows, row)
		}
	}
	if doc == "" {
		return nil
	}
	return write(doc, rounds, rows)
}

func oneLine(err error) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "/")
}

// write puts the table in the place of everything below the last heading of the file.
func write(doc string, rounds int, rows []string) error {
	text, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	const heading = "\n## Programs\n"
	before, _, ok := strings.Cut(string(text), heading)
	if !ok {
		return fmt.Errorf("%s has no heading %q", doc, strings.TrimSpace(heading))
	}
	table := before + heading + "\n" + fmt.Sprintf(intro, rounds, runtime.NumCPU(), load()) +
		"| program | works | connections over the SAN | others, and why | figure | TCP | SAN | ratio (range) |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	return os.WriteFile(doc, []byte(table), 0o666)
}

const intro = `Programs of the module proxy, unchanged, each built twice, and run between processes of one host:
server, client, and what is between them, all over TCP, or all built by sango. Figures are the
medians of %d rounds, in which both take turns; a ratio is the median of the ratios within the
rounds, above 1 where the SAN is better: what spans 1 shows nothing. Connections are those that were
dialed in one round. The machine has %d cores, and had a load average of %s in the end; on one that
is busy with other things ranges are wide. Made by

    go run . -doc ../../docs/sango.md

in examples/sango.

`

// load is the load average of a minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	l, _, _ := strings.Cut(string(text), " ")
	return l
}
