package main

import (
	"encoding/json"
	"io"
	"strings"
)

// event is one of those that go test -json reports.
type event struct {
	Action string
	Test   string
}

type events []event

// parse reads the events of tests that have ended. What is not an event is left out.
func parse(r io.Reader) (es events) {
	dec := json.NewDecoder(r)
	for {
		var e event
		if err := dec.Decode(&e); err != nil {
			return es
		}
		if e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			es = append(es, e)
		}
	}
}

func (es events) failed() bool {
	for _, e := range es {
		if e.Action == "fail" {
			return true
		}
	}
	return false
}

// outcome sums up tests.
type outcome struct {
	passed  int
	skipped []string
	failed  []string
}

// all sums up the tests, but not their parts.
func (es events) all() (o outcome) {
	for _, e := range es {
		if !strings.Contains(e.Test, "/") || e.Action == "fail" {
			o.add(e)
		}
	}
	return o
}

// under sums up the smallest parts below the name, and whatever was skipped above.
func (es events) under(name string) (o outcome) {
	divided := make(map[string]bool)
	for _, e := range es {
		if i := strings.LastIndex(e.Test, "/"); i >= 0 {
			divided[e.Test[:i]] = true
		}
	}
	for _, e := range es {
		below := strings.Contains(e.Test+"/", "/"+name+"/")
		if below && (!divided[e.Test] || e.Action == "fail") || e.Action == "skip" && !strings.Contains(e.Test, "/") {
			o.add(e)
		}
	}
	if es.failed() && o.failed == nil && o.passed == 0 {
		o.failed = []string{"the suite"}
	}
	return o
}

func (o *outcome) add(e event) {
	switch e.Action {
	case "pass":
		o.passed++
	case "skip":
		o.skipped = append(o.skipped, e.Test)
	case "fail":
		o.failed = append(o.failed, e.Test)
	}
}
