package main

import (
	"math"
	"slices"
)

// summary is the middle and the spread of some values.
type summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
}

// summarize returns the summary of at least one value.
func summarize(values []float64) summary {
	v := slices.Sorted(slices.Values(values))
	return summary{quantile(v, 0.5), v[0], v[len(v)-1], quantile(v, 0.25), quantile(v, 0.75)}
}

// quantile interpolates between the two values of a sorted list that are next to q, which is from 0 to 1.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	f := at - float64(i)
	return sorted[i]*(1-f) + sorted[i+1]*f
}

// ratios returns how many times v is better than base, round by round. Rounds that have no such ratio are left out.
func ratios(base, v []float64, higher bool) (rs []float64) {
	for i := range min(len(base), len(v)) {
		a, b := v[i], base[i]
		if !higher {
			a, b = b, a
		}
		if a > 0 && b > 0 && !math.IsInf(a/b, 0) {
			rs = append(rs, a/b)
		}
	}
	return rs
}
