package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// markdown returns the report as one table, of the first metric of each workload. That of one mode has all carriers, and
// the goals. That of several has TCP and sannet of each mode, side by side.
func (r *report) markdown() string {
	header := []string{"work"}
	var columns []func(workload, metric string) []string
	add := func(cells func(workload, metric string) []string, names ...string) {
		header = append(header, names...)
		columns = append(columns, cells)
	}
	for _, m := range r.Modes {
		suffix := ""
		carriers := carrierNames
		if len(r.Modes) > 1 {
			suffix = ", " + m.Title
			carriers = []string{"tcp", "sannet"}
		}
		for _, c := range carriers {
			if len(r.carrier(m.Mode, c)) > 0 {
				add(r.valueColumn(m.Mode, c), strings.Replace(c, "tcp", "TCP", 1)+suffix)
			}
		}
		if len(r.carrier(m.Mode, "sannet")) == 0 {
			continue
		}
		add(r.ratioColumn(m.Mode), "ratio to TCP, quartiles")
		if len(r.Modes) > 1 {
			continue
		}
		if goals[m.Mode] != nil {
			add(func(w, _ string) []string { return []string{goals[m.Mode][w]} }, "goal")
		}
		if len(r.carrier(m.Mode, "buffered")) > 0 {
			add(r.bufferedColumns(m.Mode), "ratio to buffered", "goal")
		}
	}
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(header)
	row(slices.Repeat([]string{"---"}, len(header)))
	for _, w := range r.rows() {
		cells := []string{w.workload}
		for _, column := range columns {
			cells = append(cells, column(w.workload, w.metric)...)
		}
		row(cells)
	}
	return b.String()
}

// tableRow is a workload and its first metric.
type tableRow struct {
	workload, metric string
	size, count      int
}

// rows returns the workloads of all modes. What differs in size or number is in their order, however it was measured.
func (r *report) rows() (rows []tableRow) {
	var kinds []string
	for _, res := range r.Results {
		if len(res.Metrics) == 0 {
			continue
		}
		w := tableRow{res.Workload, res.Metrics[0].Name, res.Size, res.Count}
		if !slices.Contains(rows, w) {
			rows = append(rows, w)
			kinds = append(kinds, family(w.workload))
		}
	}
	slices.SortStableFunc(rows, func(a, b tableRow) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, family(a.workload)), slices.Index(kinds, family(b.workload))),
			cmp.Compare(a.size, b.size), cmp.Compare(a.count, b.count),
		)
	})
	return rows
}

func (r *report) valueColumn(mode, carrier string) func(workload, metric string) []string {
	return func(workload, metric string) []string {
		f, ok := r.find(mode, workload, carrier, metric)
		if !ok {
			return []string{"-"}
		}
		return []string{f.Unit.spaced(f.Median)}
	}
}

func (r *report) ratioColumn(mode string) func(workload, metric string) []string {
	return func(workload, metric string) []string {
		f, ok := r.find(mode, workload, "sannet", metric)
		if !ok || f.Ratio == nil {
			return []string{"-"}
		}
		return []string{fmt.Sprintf("%s (%.2g to %.2g)", times(f.Ratio.Median), f.Ratio.Q1, f.Ratio.Q3)}
	}
}

// bufferedColumns are how many times as good as the carrier buffered sannet is, and shall be.
func (r *report) bufferedColumns(mode string) func(workload, metric string) []string {
	return func(workload, metric string) []string {
		f, ok1 := r.find(mode, workload, "sannet", metric)
		base, ok2 := r.find(mode, workload, "buffered", metric)
		if !ok1 || !ok2 {
			return []string{"-", bufferedGoals[workload]}
		}
		rs := ratios(base.Samples, f.Samples, f.Better == "higher")
		if len(rs) != len(f.Samples) {
			return []string{"-", bufferedGoals[workload]}
		}
		return []string{times(summarize(rs).Median), bufferedGoals[workload]}
	}
}

// spaced is format with a space between number and unit.
func (u unit) spaced(v float64) string {
	s := u.format(v)
	if i := strings.IndexFunc(s, func(c rune) bool { return !strings.ContainsRune("+-.0123456789", c) }); i >= 0 {
		return s[:i] + " " + s[i:]
	}
	return s
}

// docPrefix is how a document gives the command for the table below.
const docPrefix = "    go -C examples/bench run . "

// docTable is a table in a document.
type docTable struct {
	command    string // the arguments
	start, end int    // lines, after the one with the command
}

// docTables returns the tables that follow commands of this program, with nothing but blank lines between.
func docTables(lines []string) (tables []docTable) {
	for i, line := range lines {
		command, ok := strings.CutPrefix(line, docPrefix)
		if !ok {
			continue
		}
		// A shell takes the quotes away.
		t := docTable{command: strings.TrimSpace(strings.ReplaceAll(command, "'", "")), start: i + 1}
		for t.start < len(lines) && strings.TrimSpace(lines[t.start]) == "" {
			t.start++
		}
		for t.end = t.start; t.end < len(lines) && strings.HasPrefix(lines[t.end], "|"); t.end++ {
		}
		if t.command != "" && t.end > t.start {
			tables = append(tables, t)
		}
	}
	return tables
}

// replaceTable puts a table into the document, in place of that below the command.
func replaceTable(doc, command, table string) (string, error) {
	lines := strings.Split(doc, "\n")
	tables := docTables(lines)
	i := slices.IndexFunc(tables, func(t docTable) bool { return t.command == command })
	if i < 0 {
		return "", fmt.Errorf("no line %q with a table below", strings.TrimSpace(docPrefix+command))
	}
	fresh := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	return strings.Join(slices.Replace(lines, tables[i].start, tables[i].end, fresh...), "\n"), nil
}

// updateDoc returns the text of a file with a table replaced.
func updateDoc(file, command, table string) ([]byte, error) {
	doc, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-doc: %w", err)
	}
	text, err := replaceTable(string(doc), command, table)
	if err != nil {
		return nil, fmt.Errorf("-doc %s: %w", file, err)
	}
	return []byte(text), nil
}

// withoutDoc returns a command line without the flag -doc.
func withoutDoc(args []string) (command []string) {
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		switch {
		case name != "-doc" && name != "--doc":
			command = append(command, args[i])
		case !hasValue:
			i++
		}
	}
	return command
}

// remake runs every command of a document that has a table.
func remake(ctx context.Context, file string, stdout, stderr io.Writer) error {
	doc, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("-doc: %w", err)
	}
	tables := docTables(strings.Split(string(doc), "\n"))
	if len(tables) == 0 {
		return fmt.Errorf("-doc %s: no line starts with %q and has a table below", file, docPrefix)
	}
	var all []options
	for _, t := range tables {
		o, err := parse(append(strings.Fields(t.command), "-doc", file), stderr)
		if err != nil {
			return fmt.Errorf("-doc %s: %s: %w", file, t.command, err)
		}
		all = append(all, o)
	}
	for i, o := range all {
		fmt.Fprintf(stdout, "\n%s%s\n\n", docPrefix, tables[i].command)
		if err := run(ctx, o, stdout, stderr); err != nil {
			return err
		}
	}
	return nil
}
