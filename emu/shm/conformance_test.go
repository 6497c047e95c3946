//go:build linux

package shm

import (
	"testing"

	"sansock/provider"
	"sansock/provider/providertest"
)

func TestConformance(t *testing.T) {
	t.Run("two nodes", func(t *testing.T) {
		providertest.Run(t, providertest.Config{
			Open: func() (dialer, listener provider.Provider, err error) {
				return newSAN(Config{Space: "a"}), newSAN(Config{Space: "a"}), nil
			},
		})
	})
	t.Run("one node", func(t *testing.T) {
		providertest.Run(t, providertest.Config{
			Open: func() (dialer, listener provider.Provider, err error) {
				s := newSAN(Config{Space: "b"})
				return s, s, nil
			},
		})
	})
}
