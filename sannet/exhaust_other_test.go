//go:build !linux

package sannet_test

import "errors"

// exhaust is of Linux only.
func exhaust(bool) error { return errors.ErrUnsupported }
