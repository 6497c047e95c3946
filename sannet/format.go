package sannet

import (
	"fmt"
	"io"
	"strconv"
)

// Format implements fmt.Formatter: whatever the verb, the addresses and the path. Without it
// package fmt would read the fields of c beside those who set them.
func (c *Conn) Format(s fmt.State, verb rune) {
	text := "not connected"
	switch {
	case c == nil:
		text = "<nil>"
	case c.ok():
		text = c.laddr.String() + "->" + c.raddr.String() + " (" + infoOf(c.route).String() + ")"
	}
	switch {
	case verb == 'v' && s.Flag('#'):
		text = "&sannet.Conn{" + text + "}"
	case verb == 'q':
		text = strconv.Quote(text)
	}
	io.WriteString(s, text)
}

// Format implements fmt.Formatter: whatever the verb, where l listens.
func (l *Listener) Format(s fmt.State, verb rune) {
	text := "<nil>"
	if l.ok() {
		text = l.network + " " + l.Addr().String()
	}
	io.WriteString(s, text)
}
