//go:build ofi

package sannet

func init() { defaultProviders = append(defaultProviders, "ofi") }
