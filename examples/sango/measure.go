package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// measure runs the program, and returns the rows of the table.
func (p *program) measure(bin string, rounds int) []string {
	var order []figure
	values := map[string]map[string][]float64{overTCP: {}, overSAN: {}}
	var dials map[string]int
	for round := range rounds {
		kinds := []string{overTCP, overSAN}
		if round%2 == 1 {
			slices.Reverse(kinds)
		}
		for _, kind := range kinds {
			figures, paths, err := p.once(bin, kind)
			if err != nil {
				return []string{fmt.Sprintf("| %s | **no**, over %s: %s | | | | | | |", p.title, kind, oneLine(err))}
			}
			for _, f := range figures {
				if len(values[overTCP][f.name])+len(values[overSAN][f.name]) == 0 {
					order = append(order, f)
				}
				values[kind][f.name] = append(values[kind][f.name], f.value)
			}
			if kind == overSAN {
				dials = paths
			}
		}
	}
	first := fmt.Sprintf("| %s | yes | %d | %s", p.title, dials[sanPath], others(dials))
	var rows []string
	for _, f := range order {
		tcp, san := values[overTCP][f.name], values[overSAN][f.name]
		var ratios []float64
		for i := range tcp {
			r := san[i] / tcp[i]
			if !f.higher {
				r = 1 / r
			}
			ratios = append(ratios, r)
		}
		rows = append(rows, fmt.Sprintf("%s | %s | %s | %s | %.2f (%.2f to %.2f) |", first, f.name, f.show(median(tcp)),
			f.show(median(san)), median(ratios), slices.Min(ratios), slices.Max(ratios)))
		first = "| | | | "
	}
	return rows
}

const sanPath = "san via emu"

// others are the connections over TCP, and why.
func others(dials map[string]int) string {
	var all []string
	for _, path := range slices.Sorted(maps.Keys(dials)) {
		if path != sanPath {
			why, _, _ := strings.Cut(strings.TrimPrefix(path, "tcp: "), " (")
			all = append(all, fmt.Sprintf("%d: %s", dials[path], why))
		}
	}
	if len(all) == 0 {
		return "0"
	}
	return strings.Join(all, "; ")
}

// limit is how long a round may take.
const limit = 40 * time.Second

// once runs the program over one path.
func (p *program) once(bin, kind string) (figures []figure, paths map[string]int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "sango-run-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	e, err := newEnviron(bin, kind, dir)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(e.expand(text)), 0o666); err != nil {
			return nil, nil, err
		}
	}
	var outs []*bytes.Buffer
	for _, args := range p.servers {
		cmd, out := e.command(ctx, args)
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			return nil, nil, err
		}
		outs = append(outs, out)
		defer stop(cmd)
	}
	for _, addr := range p.wait {
		if err := ready(ctx, e.expand(addr)); err != nil {
			return nil, nil, fmt.Errorf("%w: %s", err, outs)
		}
	}
	cmd, stderr := e.command(ctx, p.client)
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s %s", err, stderr, outs)
	}
	if figures, err = p.figures(string(out)); err != nil {
		return nil, nil, err
	}
	paths, err = e.dials()
	return figures, paths, err
}

// stop ends a command and what it has started.
func stop(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Wait()
}

// ready waits until somebody listens.
func ready(ctx context.Context, addr string) error {
	for ctx.Err() == nil {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("nothing listens on %s", addr)
}

// environ is what a round has.
type environ struct {
	kind, dir, trace string
	replace          *strings.Replacer
	bin              string
}

func newEnviron(bin, kind, dir string) (*environ, error) {
	bin, err := filepath.Abs(filepath.Join(bin, kind))
	if err != nil {
		return nil, err
	}
	pairs := []string{"{dir}", dir, "{bin}", bin}
	for i := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		pairs = append(pairs, fmt.Sprintf("{%d}", i+1), l.Addr().String(),
			fmt.Sprintf("{port%d}", i+1), fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	}
	return &environ{
		kind: kind, dir: dir, bin: bin, trace: filepath.Join(dir, "trace"), replace: strings.NewReplacer(pairs...),
	}, nil
}

func (e *environ) expand(s string) string { return e.replace.Replace(s) }

// command is one of the program's, with what it prints as errors.
func (e *environ) command(ctx context.Context, args []string) (*exec.Cmd, *bytes.Buffer) {
	var full []string
	for _, a := range args {
		full = append(full, e.expand(a))
	}
	if full[0] != "sh" {
		full[0] = filepath.Join(e.bin, full[0])
	}
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Env = append(os.Environ(), "SANGO_TRACE="+e.trace,
		"HOME="+e.dir, "XDG_CONFIG_HOME="+e.dir, "XDG_DATA_HOME="+e.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stderr = &out
	return cmd, &out
}

// dials are the connections that were dialed, by path and reason.
func (e *environ) dials() (map[string]int, error) {
	paths := make(map[string]int)
	if e.kind == overTCP {
		return paths, nil
	}
	text, err := os.ReadFile(e.trace)
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 6); len(f) == 6 && f[2] == "dial" {
			paths[f[5]]++
		}
	}
	return paths, err
}
