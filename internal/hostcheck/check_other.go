//go:build !linux

package hostcheck

import (
	"errors"
	"fmt"
)

// SharedMemory returns what keeps this process from sharing memory with others: here, that
// nothing was written for it.
func SharedMemory() error {
	return fmt.Errorf("shared memory between processes: %w", errors.ErrUnsupported)
}
