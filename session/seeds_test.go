package session

import (
	"os"
	"strconv"
	"testing"
)

// testSeeds is how many seeds a randomised test tries: few every day, and fewer still with the race detector, which
// has nothing to find without goroutines; as many as SANSOCK_SEEDS says by hand.
func testSeeds(t testing.TB, few int) int {
	if s := os.Getenv("SANSOCK_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("SANSOCK_SEEDS: %v", err)
		}
		return n
	}
	if RaceEnabled {
		return max(1, few/5)
	}
	return few
}
