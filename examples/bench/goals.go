package main

// goals are what the project's design asks for, by mode and workload: so many times as good as TCP where that is a
// number with an x.
var goals = map[string]map[string]string{
	modeOne: {
		"roundtrip/1B": "35x", "roundtrip/64B": "35x", "roundtrip/1KiB": "35x", "roundtrip/64KiB": "7.5x",
		"sporadic/64B": "3.5x",
		"stream/64B":   "80x", "stream/4KiB": "12x", "stream/64KiB": "8x", "stream/1MiB": "6.5x",
		"http/100B/c1": "2.3x", "http/100B/c64": "2.3x", "http/1MiB/c1": "3.5x", "http/1MiB/c64": "3.5x",
		"idle/1000": "8 KiB",
	},
	modeTwo: {
		"roundtrip/1B": twoRoundTrip, "roundtrip/64B": twoRoundTrip, "roundtrip/1KiB": twoRoundTrip,
		"sporadic/64B": "1.5x",
		"stream/64B":   "50x", "stream/4KiB": "12x", "stream/64KiB": "6x", "stream/1MiB": "5x",
		"active/64": "12x",
		"idle/1000": "24 KiB",
	},
}

// Both ends may be on one core, or on two.
const twoRoundTrip = "5x packed, 20x spread"

// bufferedGoals are how many times as good as the carrier buffered sannet shall be, in one process.
var bufferedGoals = map[string]string{
	"roundtrip/1B": "1x", "roundtrip/64B": "1x", "roundtrip/1KiB": "1x", "roundtrip/4KiB": "1x", "roundtrip/64KiB": "1x",
	"stream/64KiB": "1.7x", "stream/1MiB": "1.7x", "stream/16MiB": "1.7x",
}
