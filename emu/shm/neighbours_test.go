//go:build linux

package shm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A neighbour is a hostile process: the test binary in a role, told whom to attack. It says so when it has done what it can, and
// stays.

const attackVar = "SANSOCK_SHM_ATTACK"

var attacks = map[string]func(n *Node, at netip.AddrPort) error{
	"lingering":      lingering,
	"empty packets":  emptyPackets,
	"many files":     manyFiles,
	"silent halves":  silentHalves,
	"squatter":       squatter,
	"claims address": claimsAddress,
	"idle links":     idleLinks,
}

func attack(what string) int {
	n := Open(Config{Space: os.Getenv("SANSOCK_SHM_SPACE")})
	at := netip.MustParseAddrPort(os.Getenv("SANSOCK_SHM_TARGET"))
	if uid, err := strconv.Atoi(os.Getenv("SANSOCK_SHM_UID")); err == nil {
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := attacks[what](n, at); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(1)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// lingers returns TCP sockets whose last close would wait for an hour.
func lingers(k int) (fds []int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil
	}
	for range k {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return fds
		}
		c.(*net.TCPConn).SetLinger(3600)
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for err == nil {
			_, err = c.Write(make([]byte, 1<<20))
		}
		rc, _ := c.(*net.TCPConn).SyscallConn()
		rc.Control(func(fd uintptr) {
			d, _ := unix.Dup(int(fd))
			fds = append(fds, d)
		})
		c.(*net.TCPConn).SetLinger(3600)
		unix.SetNonblock(fds[len(fds)-1], false)
	}
	return fds
}

func (n *Node) knock(at netip.AddrPort) (*net.UnixConn, error) {
	c, err := net.Dial("unixpacket", n.name(at))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// lingering sends lingering sockets before it has been trusted, and after.
func lingering(n *Node, at netip.AddrPort) error {
	fds := lingers(4)
	for i := range 40 {
		c, err := n.knock(at)
		if err != nil {
			return err
		}
		if i%2 == 1 {
			c.SetReadDeadline(time.Now().Add(time.Second))
			c.Read(make([]byte, 100))
		}
		c.WriteMsgUnix([]byte{1}, unix.UnixRights(fds[i%4]), nil)
	}
	for _, fd := range fds {
		go unix.Close(fd)
	}
	return nil
}

// emptyPackets sends nothing, with descriptors.
func emptyPackets(n *Node, at netip.AddrPort) error {
	fd := int(os.Stdin.Fd())
	for range 40 {
		c, err := n.knock(at)
		if err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 100))
		c.WriteMsgUnix(nil, unix.UnixRights(fd, fd, fd), nil)
		c.Close()
	}
	return nil
}

// manyFiles sends more descriptors than anybody has room for.
func manyFiles(n *Node, at netip.AddrPort) error {
	fds := lingers(1)
	for range 100 {
		fds = append(fds, int(os.Stdin.Fd()))
	}
	for range 10 {
		c, err := n.knock(at)
		if err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 100))
		c.WriteMsgUnix([]byte{1}, unix.UnixRights(fds...), nil)
	}
	return nil
}

func silentHalves(n *Node, at netip.AddrPort) error {
	for range 300 {
		if _, err := n.knock(at); err != nil {
			return err
		}
	}
	return nil
}

// squatter takes the more specific name of a wildcard listener's address, and says nothing.
func squatter(n *Node, at netip.AddrPort) error {
	_, err := net.Listen("unixpacket", n.name(at))
	return err
}

// claimsAddress dials from where it is not.
func claimsAddress(n *Node, at netip.AddrPort) error {
	for _, a := range []string{"8.8.8.8:53", "[::1]:53", "0.0.0.0:53", "224.0.0.1:53"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := n.Dial(ctx, netip.MustParseAddrPort(a), at)
		cancel()
		if err == nil {
			return fmt.Errorf("connected from %s", a)
		}
	}
	return nil
}

// idleLinks makes as many links as it can.
func idleLinks(n *Node, at netip.AddrPort) error {
	for range 2 * maxPeerLinks {
		x := Open(Config{Space: n.Space})
		l, err := x.linkTo(context.Background(), at)
		if err != nil {
			return nil
		}
		l.mu.Lock()
		l.used++ // it does not end by itself
		l.mu.Unlock()
	}
	return fmt.Errorf("%d links", 2*maxPeerLinks)
}

// neighbour starts an attack, and returns when it has done all it can.
func neighbour(t *testing.T, what string, v *victim, uid int) {
	env := []string{attackVar + "=" + what, "SANSOCK_SHM_TARGET=" + v.l.Addr().String()}
	if uid >= 0 {
		env = append(env, "SANSOCK_SHM_UID="+strconv.Itoa(uid))
	}
	start(t, "attack", space(t), env...)
}

// welcome proves that a new honest dial is served, within a second.
func (v *victim) welcome(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	e, err := openSAN(t, Config{Space: name}).Dial(ctx, netip.AddrPort{}, v.l.Addr())
	require.NoError(t, err)
	e.Close()
}

// TestNeighbours lets each attack go on beside an honest peer. That is served, and so is one that comes.
func TestNeighbours(t *testing.T) {
	for what := range attacks {
		if what == "squatter" || what == "crowd" {
			continue
		}
		for _, uid := range []int{-1, 12345} {
			if uid >= 0 && (os.Getuid() != 0 || what == "claims address" || what == "idle links" || what == "empty packets") {
				continue // another user gets no further than the handshake
			}
			t.Run(fmt.Sprint(what, " ", uid), func(t *testing.T) {
				v := newVictim(t)
				before := openFiles(t)
				neighbour(t, what, v, uid)
				v.alive(t)
				v.welcome(t, space(t))
				if what == "empty packets" {
					require.Eventually(t, func() bool { return openFiles(t) < before+20 }, 5*time.Second, 10*time.Millisecond)
				}
			})
		}
	}
}

// TestSquatter has another user on the name that is asked first. The search goes on, and the dial does not wait for him.
func TestSquatter(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: another user can be had by root only")
	}
	s := openSAN(t, Config{Space: space(t)})
	l, err := s.Listen(netip.MustParseAddrPort("0.0.0.0:0"), 16)
	require.NoError(t, err)
	at := netip.AddrPortFrom(loopback.Addr(), l.Addr().Port())
	start(t, "attack", space(t), attackVar+"=squatter", "SANSOCK_SHM_TARGET="+at.String(), "SANSOCK_SHM_UID=12345")
	go func() {
		for {
			e, err := accept(l)
			if err != nil {
				return
			}
			defer e.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e, err := openSAN(t, Config{Space: space(t)}).Dial(ctx, netip.AddrPort{}, at)
	require.NoError(t, err)
	e.Close()
}

// TestCrowd has many honest processes' worth of nodes dial at once. All connect.
func TestCrowd(t *testing.T) {
	const crowd = 1000
	s := openSAN(t, Config{Space: space(t)})
	s.Node.Accept = func(p Peer) bool { return true }
	l, err := s.Listen(loopback, crowd)
	require.NoError(t, err)
	go func() {
		for {
			e, err := accept(l)
			if err != nil {
				return
			}
			defer e.Close()
		}
	}()
	n := crowd
	if testing.Short() || raced {
		n = 60
	}
	procs := 20
	if n < crowd {
		procs = 2
	}
	var wg sync.WaitGroup
	for range procs {
		wg.Go(func() {
			p := start(t, "attack", space(t), attackVar+"=crowd", "SANSOCK_SHM_TARGET="+l.Addr().String(),
				"SANSOCK_SHM_CROWD="+strconv.Itoa(n/procs))
			assert.NotNil(t, p)
		})
	}
	wg.Wait()
}

// crowding is many nodes that dial at once, each as a process of its own would.
func crowding(n *Node, at netip.AddrPort) error {
	k, _ := strconv.Atoi(os.Getenv("SANSOCK_SHM_CROWD"))
	errs := make(chan error, k)
	for range k {
		go func() {
			_, err := Open(Config{Space: n.Space}).Dial(context.Background(), netip.AddrPortFrom(at.Addr(), 0), at)
			errs <- err
		}()
	}
	for range k {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func init() { attacks["crowd"] = crowding }
