//go:build linux

package shm

import (
	"testing"
	"time"

	"sansock/provider"
	"sansock/provider/providertest"
)

func TestConformance(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	t.Run("two nodes", func(t *testing.T) {
		providertest.Run(t, providertest.Config{
			Rounds: rounds,
			Open: func() (dialer, listener provider.Provider, err error) {
				return newSAN(Config{Space: "a"}), newSAN(Config{Space: "a"}), nil
			},
		})
	})
	t.Run("one node", func(t *testing.T) {
		providertest.Run(t, providertest.Config{
			Rounds: 40,
			Quiet:  5 * time.Millisecond,
			Open: func() (dialer, listener provider.Provider, err error) {
				s := newSAN(Config{Space: "b"})
				return s, s, nil
			},
		})
	})
}
