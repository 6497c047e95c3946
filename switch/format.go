package sanswitch

import (
	"fmt"
	"io"
	"strings"
)

// Format implements fmt.Formatter: whatever the verb, where l listens. Without it package fmt
// would read the fields of l beside those who set them.
func (l *Listener) Format(s fmt.State, verb rune) {
	if l == nil || l.addr == nil {
		io.WriteString(s, "<nil>")
		return
	}
	io.WriteString(s, l.network+" "+l.addr.String())
}

// Format implements fmt.Formatter, likewise: the names of the providers.
func (s *Switch) Format(st fmt.State, verb rune) {
	if s == nil || s.table == nil {
		io.WriteString(st, "<nil>")
		return
	}
	var names []string
	for _, p := range s.table.providers {
		names = append(names, p.Name())
	}
	io.WriteString(st, "switch{"+strings.Join(names, ",")+"}")
}
