package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// prometheusClient looks what a server has scraped, and how long that took.
func prometheusClient(addr string) error {
	// Once there are 30 scrapes; 20 s at most.
	for range 200 {
		n, err := query(addr, `count_over_time(scrape_duration_seconds{job="drive"}[5m])`)
		if err != nil {
			return err
		}
		if n >= 30 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	up, err := query(addr, `min_over_time(up{job="drive"}[5m])`)
	if err != nil {
		return err
	}
	if series, err := query(addr, `count(drive_figure)`); err != nil || up != 1 || series != 1000 {
		return fmt.Errorf("up %v, %v series: %w", up, series, err)
	}
	took, err := query(addr, `quantile_over_time(0.5, scrape_duration_seconds{job="drive"}[5m])`)
	if err != nil {
		return err
	}
	figure("scrape of 1000 series, median", took*1e6, "µs", "lower")
	return nil
}

// query returns the value of an expression, 0 if there is none.
func query(addr, expr string) (float64, error) {
	r, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || len(answer.Data.Result) == 0 {
		return 0, err
	}
	s, _ := answer.Data.Result[0].Value[1].(string)
	return strconv.ParseFloat(s, 64)
}
