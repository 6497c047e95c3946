// Package inline puts errors together on one line.
package inline

import "fmt"

// Join is errors.Join in one line.
func Join(errs []error) (all error) {
	for _, err := range errs {
		if all == nil {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}
