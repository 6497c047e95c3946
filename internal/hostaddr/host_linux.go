package hostaddr

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watch counts changes of the addresses: the kernel tells of each in a message to a socket, which
// is looked at when somebody asks. Nothing runs in between.
type watch struct {
	mu    sync.Mutex
	state watchState
	fd    int
	gen   uint64
}

// watchState is what has become of the socket.
type watchState uint8

const (
	watchNone    watchState = iota // nobody has asked yet
	watchOpen                      // it tells
	watchRefused                   // this process is not allowed to have one
)

// glance bounds how many messages are taken at a time: one is as good as many.
const glance = 64

func (w *watch) generation() (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == watchNone {
		w.open()
	}
	if w.state != watchOpen {
		return 0, false
	}
	var b [1]byte // the rest of a message is dropped
	for i := range glance {
		_, _, err := unix.Recvfrom(w.fd, b[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err == unix.EAGAIN {
			break
		}
		if err != nil && err != unix.ENOBUFS && err != unix.EINTR {
			w.state = watchRefused // it is not our socket any more
			return 0, false
		}
		if i == 0 { // a message, or that there were more than the socket holds
			w.gen++
		}
	}
	return w.gen, true
}

// open makes the socket, if it can: a lack of descriptors passes. It needs to be called with locked
// mutex.
func (w *watch) open() {
	const kind = unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	fd, err := unix.Socket(unix.AF_NETLINK, kind, unix.NETLINK_ROUTE)
	switch err {
	case nil:
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		return
	default:
		w.state = watchRefused
		return
	}
	const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR
	addr := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}
	if err := unix.Bind(fd, addr); err != nil {
		unix.Close(fd)
		w.state = watchRefused
		return
	}
	w.state, w.fd = watchOpen, fd
	w.gen++ // what was read without it may have changed
}

// listFiles reads the addresses from the files in which the kernel has them, for processes that
// may not ask for them.
func listFiles() []netip.Addr {
	var as []netip.Addr
	for path, parse := range map[string]func(io.Reader) []netip.Addr{
		"/proc/self/net/fib_trie": parseTrie,
		"/proc/self/net/if_inet6": parseInet6,
	} {
		if f, err := os.Open(path); err == nil {
			as = append(as, parse(f)...)
			f.Close()
		}
	}
	return as
}

// parseTrie finds the addresses of this host in the table of IPv4 routes:
//
//	|-- 192.0.2.2
//	   /32 host LOCAL
func parseTrie(r io.Reader) []netip.Addr {
	var as []netip.Addr
	var last netip.Addr
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if text, ok := strings.CutPrefix(line, "|-- "); ok {
			last, _ = netip.ParseAddr(text)
		} else if line == "/32 host LOCAL" && last.IsValid() {
			as = append(as, last)
		}
	}
	return as
}

// parseInet6 finds the addresses in the list of IPv6 addresses: 32 digits at the beginning of
// each line.
func parseInet6(r io.Reader) []netip.Addr {
	var as []netip.Addr
	for lines := bufio.NewScanner(r); lines.Scan(); {
		digits, _, _ := strings.Cut(lines.Text(), " ")
		var groups []string
		for ; len(digits) >= 4; digits = digits[4:] {
			groups = append(groups, digits[:4])
		}
		if a, err := netip.ParseAddr(strings.Join(groups, ":")); err == nil {
			as = append(as, a)
		}
	}
	return as
}
