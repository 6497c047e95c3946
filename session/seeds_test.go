package session

import (
	"os"
	"strconv"
	"testing"
)

// testSeeds is how many seeds a randomised test tries: few every day, as many as SANSOCK_SEEDS says by hand.
func testSeeds(t testing.TB, few int) int {
	if s := os.Getenv("SANSOCK_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("SANSOCK_SEEDS: %v", err)
		}
		return n
	}
	return few
}
