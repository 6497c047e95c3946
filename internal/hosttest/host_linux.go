//go:build linux

package hosttest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostEnv has the name of the test in the process that is on the host.
const hostEnv = "SANSOCK_HOSTTEST"

// limit is how long a test on a host may take.
const limit = 2 * time.Minute

func run(t *testing.T, h Host, f func(*testing.T)) {
	t.Helper()
	if os.Getenv(hostEnv) == t.Name() {
		h.become(t)
		f(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("*** NOT RUN: a host of its own needs the rights of root ***")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	args := []string{"-test.run=" + name, "-test.v", "-test.timeout=" + limit.String()}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), hostEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState == nil:
		t.Skipf("*** NOT RUN: no namespaces: %v ***", err)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("on the host: %v\n%s", err, out)
	default:
		t.Logf("on the host:\n%s", out)
	}
}

// become makes this process's namespaces the host.
func (h Host) become(t *testing.T) {
	t.Helper()
	must := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for path, text := range map[string]string{"/etc/hosts": h.Hosts, "/etc/resolv.conf": h.Resolv} {
		file := filepath.Join(t.TempDir(), "file")
		must("write", os.WriteFile(file, []byte(text), 0o644))
		must("mount "+path, unix.Mount(file, path, "", unix.MS_BIND, ""))
		t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
	}
	must("loopback up", up("lo"))
	for _, a := range h.Addrs {
		must("address "+a, AddAddr("lo", netip.MustParsePrefix(a)))
	}
	if h.Setup != nil {
		h.Setup(t)
	}
}

// up switches an interface on.
func up(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// AddAddr gives an interface of the host addresses.
func AddAddr(name string, ps ...netip.Prefix) error {
	return changeAddrs(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name, ps)
}

// DelAddr takes addresses away from an interface of the host.
func DelAddr(name string, ps ...netip.Prefix) error {
	return changeAddrs(unix.RTM_DELADDR, 0, name, ps)
}

func changeAddrs(kind, flags uint16, name string, ps []netip.Prefix) error {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, p := range ps {
		if err := changeAddr(fd, kind, flags, ifi.Index, p); err != nil {
			return err
		}
	}
	return nil
}

// changeAddr sends one request to the kernel and waits for its answer.
func changeAddr(fd int, kind, flags uint16, index int, p netip.Prefix) error {
	ip := p.Addr().AsSlice()
	family := byte(unix.AF_INET6)
	if p.Addr().Is4() {
		family = unix.AF_INET
	}
	ne := binary.NativeEndian
	body := []byte{family, byte(p.Bits()), unix.IFA_F_NODAD, 0}
	body = ne.AppendUint32(body, uint32(index))
	for _, attr := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = ne.AppendUint16(ne.AppendUint16(body, uint16(4+len(ip))), attr)
		body = append(body, ip...)
	}
	msg := ne.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = ne.AppendUint16(msg, kind)
	msg = ne.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	msg = ne.AppendUint32(ne.AppendUint32(msg, 1), 0)
	msg = append(msg, body...)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 {
		return unix.EBADMSG
	}
	if errno := int32(ne.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		return unix.Errno(-errno)
	}
	return nil
}
