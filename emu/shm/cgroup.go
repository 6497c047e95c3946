package shm

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
)

// groupMemory is how much memory the control group of this process may have, in bytes; math.MaxInt64 where there is no limit.
var groupMemory = sync.OnceValue(func() int64 {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return math.MaxInt64
	}
	return groupLimit(string(b), "/sys/fs/cgroup", os.ReadFile)
})

// groupLimit finds the tightest limit in the control groups that are listed, and those above them. The lines are those of
// /proc/self/cgroup, of either version.
func groupLimit(groups, root string, read func(string) ([]byte, error)) int64 {
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dir, file := root, "memory.max"
		switch {
		case f[1] == "": // version 2
		case hasController(f[1], "memory"):
			dir, file = path.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for p := path.Clean("/" + f[2]); ; p = path.Dir(p) {
			if b, err := read(path.Join(dir, p, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
					limit = min(limit, n)
				}
			}
			if p == "/" {
				break
			}
		}
	}
	return limit
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}
