package main

import (
	"reflect"
	"testing"
)

func TestDriveFigures(t *testing.T) {
	got, err := driveFigures("noise\nGET|12.5|µs|lower\ncalls|2000|/s|higher\n")
	want := []figure{{"GET", 12.5, "µs", false}, {"calls", 2000, "/s", true}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatal(got, err)
	}
}

func TestVegetaFigures(t *testing.T) {
	got, err := vegetaFigures(`{"throughput":1000,"success":1,"latencies":{"50th":250000}}`)
	if err != nil || len(got) != 2 || got[0].value != 1000 || got[1].value != 250 {
		t.Fatal(got, err)
	}
	if _, err := vegetaFigures(`{"success":0.5}`); err == nil {
		t.Fatal("half of the requests failed")
	}
}

func TestNatsFigures(t *testing.T) {
	got, err := natsFigures("NATS Core NATS service requester stats: 12,345 msgs/sec ~ 1.5 MiB/sec")
	if err != nil || got[0].value != 12345 {
		t.Fatal(got, err)
	}
}

func TestNameOf(t *testing.T) {
	for pkg, want := range map[string]string{
		vegeta:    "vegeta",
		"./drive": "drive",
		"github.com/nats-io/nats-server/v2@v2.15.3":         "nats-server",
		"github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9": "caddy",
	} {
		if got := nameOf(pkg); got != want {
			t.Errorf("%s: %s", pkg, got)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Error(m)
	}
}
