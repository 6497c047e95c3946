//go:build ofi && cgo && linux

package ofi

/*
#cgo LDFLAGS: -ldl
#cgo noescape san_inject
#cgo nocallback san_inject
#cgo nocallback san_poll
#cgo nocallback san_read
#cgo nocallback san_spin
#cgo nocallback san_eq_next
#cgo nocallback san_recv
#cgo nocallback san_send
#cgo nocallback san_write
#cgo nocallback san_rread
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// The types of the library as the other files know them.
type (
	cFabric     = C.struct_fid_fabric
	cInfo       = C.struct_fi_info
	cEventQueue = C.struct_san_eq
	cPassive    = C.struct_fid_pep
	cMemory     = C.struct_fid_mr
)

// cEndpoint is the library's part of an endpoint.
type cEndpoint C.struct_san_ep

func (e *cEndpoint) c() *C.struct_san_ep { return (*C.struct_san_ep)(e) }

// registrationCache is the size of libfabric's registration cache. It is 0, as memory stays reachable in there, and for
// every access. Tests make it larger to see that they notice.
var registrationCache = "0"

// load opens the library, at the first call.
var load = sync.OnceValue(func() error {
	cache := C.CString(registrationCache)
	defer C.free(unsafe.Pointer(cache))
	var why [256]C.char
	if C.san_load(cache, &why[0], C.size_t(len(why))) != 0 {
		return errors.New(C.GoString(&why[0]))
	}
	return nil
})

// libraryVersion is that of the library, once it is loaded.
func libraryVersion() string {
	v := uint32(C.san_version())
	return fmt.Sprintf("%d.%d", v>>16, v&0xffff)
}

// fabricError is an error of libfabric. It has no errno to be compared with, as what it means depends on the call.
type fabricError struct {
	call string
	code int // positive
}

func (e *fabricError) Error() string {
	return e.call + ": " + C.GoString(C.san_strerror(C.int(e.code)))
}

// check makes an error of a result.
func check(call string, ret C.int) error {
	if ret >= 0 {
		return nil
	}
	return &fabricError{call, int(-ret)}
}

// codeOf is the libfabric code in err, 0 if there is none. Codes below 256 are errnos.
func codeOf(err error) syscall.Errno {
	var e *fabricError
	if errors.As(err, &e) {
		return syscall.Errno(e.code)
	}
	return 0
}

// info is something to connect through: a device with one of its addresses.
type info struct {
	c       *cInfo
	list    *cInfo // the list that c is part of
	domain  string
	addr    netip.Addr
	message uint64 // longest message and transfer
	inject  int
	tx, rx  int

	registers bool // local memory must be registered
	virtual   bool // remote addresses are the owner's; otherwise they are offsets
	chooses   bool // the provider chooses keys
}

// discover lists what a libfabric provider offers, best first. The list is never freed, as it is asked for once.
func discover(fabric string, tx, rx int) ([]*info, error) {
	prov := C.CString(fabric)
	defer C.free(unsafe.Pointer(prov))
	var list *cInfo
	if err := check("fi_getinfo", C.san_discover(prov, C.size_t(tx), C.size_t(rx), &list)); err != nil {
		return nil, err
	}
	var all []*info
	for c := list; c != nil; c = c.next {
		mode := uint64(c.domain_attr.mr_mode)
		i := &info{
			c:         c,
			domain:    C.GoString(c.domain_attr.name),
			message:   uint64(c.ep_attr.max_msg_size),
			inject:    int(min(c.tx_attr.inject_size, C.SAN_MAX_INJECT)),
			tx:        int(c.tx_attr.size),
			rx:        int(c.rx_attr.size),
			registers: mode&C.FI_MR_LOCAL != 0,
			virtual:   mode&C.FI_MR_VIRT_ADDR != 0,
			chooses:   mode&C.FI_MR_PROV_KEY != 0,
		}
		i.addr = addressOf(c.src_addr).Addr()
		all = append(all, i)
	}
	if len(all) == 0 {
		C.san_free(list)
	}
	return all, nil
}

// addressOf returns a socket address, invalid if it is not one of IP.
func addressOf(sockaddr unsafe.Pointer) netip.AddrPort {
	var (
		ip   [16]byte
		port C.uint16_t
	)
	return addrPort(&ip, port, C.san_address(sockaddr, bytesOf(&ip), &port))
}

func bytesOf(ip *[16]byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(ip)) }

func addrPort(ip *[16]byte, port C.uint16_t, n C.int) netip.AddrPort {
	switch n {
	case 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[:4])), uint16(port))
	case 16:
		return netip.AddrPortFrom(netip.AddrFrom16(*ip).Unmap(), uint16(port))
	}
	return netip.AddrPort{}
}

// with returns a copy of the C part for one connection or listener. It must be freed. An invalid address is none.
func (i *info) with(src, dst netip.AddrPort) (*cInfo, error) {
	raw := func(a netip.AddrPort) (ip [16]byte, n C.int) {
		switch {
		case a.Addr().Is4():
			b := a.Addr().As4()
			return [16]byte(append(b[:], make([]byte, 12)...)), 4
		case a.Addr().Is6():
			return a.Addr().As16(), 16
		}
		return ip, 0
	}
	s, ns := raw(src)
	d, nd := raw(dst)
	c := C.san_info(i.c, bytesOf(&s), ns, C.uint16_t(src.Port()), bytesOf(&d), nd, C.uint16_t(dst.Port()))
	if c == nil {
		return nil, check("fi_dupinfo", -C.FI_ENOMEM)
	}
	return c, nil
}

func freeInfo(c *cInfo) { C.san_free(c) }

// domainOf is the device of a connection request.
func domainOf(c *cInfo) string { return C.GoString(c.domain_attr.name) }

// sourceOf and destinationOf are the addresses in an info.
func sourceOf(c *cInfo) netip.AddrPort      { return addressOf(c.src_addr) }
func destinationOf(c *cInfo) netip.AddrPort { return addressOf(c.dest_addr) }

func openFabric(i *info) (*cFabric, error) {
	var f *cFabric
	return f, check("fi_fabric", C.san_fabric(i.c, &f))
}

// What follows are the functions of shim.h.

func closeFabric(f *cFabric) error { return check("fi_close of the fabric", C.san_fabric_close(f)) }

func openEventQueue(f *cFabric) (*cEventQueue, error) {
	var q *cEventQueue
	return q, check("fi_eq_open", C.san_eq_open(f, &q))
}

func closeEventQueue(q *cEventQueue) error {
	return check("fi_close of the event queue", C.san_eq_close(q))
}

// event is what an event queue reports.
type event struct {
	what       eventKind
	code, prov int     // of an eventError: libfabric's, and the provider's own
	fid        uintptr // the endpoint
	request    *cInfo  // of an eventRequest; the receiver's to free
	data       []byte  // private data, with junk behind it
}

type eventKind uint8

const (
	eventOther eventKind = iota
	eventRequest
	eventConnected
	eventShutdown
	eventError
)

// next takes the next event. Without one it says whether the caller may sleep.
func nextEvent(q *cEventQueue) (e event, some, sleep bool, err error) {
	switch ret := C.san_eq_next(q); {
	case ret == 0:
		return e, false, true, nil
	case ret == C.SAN_BUSY:
		return e, false, false, nil
	case ret < 0:
		return e, false, false, check("fi_eq_read", ret)
	}
	e.fid = uintptr(q.fid)
	e.data = C.GoBytes(unsafe.Pointer(&q.data[0]), C.int(q.len))
	switch {
	case q.err != 0:
		e.what, e.code, e.prov = eventError, int(q.err), int(q.prov_errno)
	case q.event == C.FI_CONNREQ:
		e.what, e.request = eventRequest, q.info
	case q.event == C.FI_CONNECTED:
		e.what = eventConnected
	case q.event == C.FI_SHUTDOWN:
		e.what = eventShutdown
	}
	return e, true, false, nil
}

// listenAt listens at the source address of c, and returns the port.
func listenAt(q *cEventQueue, c *cInfo, backlog int) (*cPassive, uint16, error) {
	var (
		p    *cPassive
		port C.uint16_t
	)
	err := check("fi_listen", C.san_listen(q, c, C.int(backlog), &p, &port))
	return p, uint16(port), err
}

func closePassive(p *cPassive) error { return check("fi_close of the listener", C.san_pep_close(p)) }

// reject rejects a connection request. c, which remains the caller's, is used up.
func reject(q *cEventQueue, c *cInfo, data []byte) error {
	return check("fi_reject", C.san_reject(q, c, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data))))
}

func openEndpoint(q *cEventQueue, c *cInfo, completions int) (*cEndpoint, error) {
	var (
		e    *C.struct_san_ep
		step *C.char
	)
	if ret := C.san_ep_open(q, c, C.size_t(completions), &e, &step); ret != 0 {
		return nil, check(C.GoString(step), ret)
	}
	return (*cEndpoint)(e), nil
}

func (e *cEndpoint) fid() uintptr { return uintptr(C.san_ep_fid(e.c())) }

func (e *cEndpoint) connect(c *cInfo, data []byte) error {
	return check("fi_connect", C.san_connect(e.c(), c, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data))))
}

func (e *cEndpoint) accept(data []byte) error {
	return check("fi_accept", C.san_accept(e.c(), (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data))))
}

// name is the fabric's name of this end, or of the peer.
func (e *cEndpoint) name(peer bool) netip.AddrPort {
	var (
		ip   [16]byte
		port C.uint16_t
		p    C.int
	)
	if peer {
		p = 1
	}
	return addrPort(&ip, port, C.san_name(e.c(), p, bytesOf(&ip), &port))
}

func (e *cEndpoint) shutdown() error { return check("fi_shutdown", C.san_shutdown(e.c())) }
func (e *cEndpoint) close() error    { return check("fi_close of the endpoint", C.san_ep_close(e.c())) }
func (e *cEndpoint) closeQueue() error {
	return check("fi_close of the completion queue", C.san_cq_close(e.c()))
}
func (e *cEndpoint) free() error { return check("fi_close of the domain", C.san_ep_free(e.c())) }

// done is a completion of the fabric's.
type done struct {
	context    uint64
	n          int
	code, prov int // 0: it succeeded
}

// read takes completions and returns how many; completion gives them.
func (e *cEndpoint) read() (n int, err error) {
	ret := C.san_read(e.c())
	return max(int(ret), 0), check("fi_cq_read", ret)
}

// spin is read until there is a completion, or the time is over.
func (e *cEndpoint) spin(limit time.Duration) (n int, err error) {
	ret := C.san_spin(e.c(), C.uint64_t(limit))
	return max(int(ret), 0), check("fi_cq_read", ret)
}

// poll is read, and without completions says whether the caller may sleep. With drained nothing is expected.
func (e *cEndpoint) poll(drained bool) (n int, sleep bool, err error) {
	var d C.int
	if drained {
		d = 1
	}
	switch ret := C.san_poll(e.c(), d); {
	case ret == 0:
		return 0, true, nil
	case ret == C.SAN_BUSY:
		return 0, false, nil
	case ret < 0:
		return 0, false, check("fi_cq_read", ret)
	default:
		return int(ret), false, nil
	}
}

// completion is number i of those that read or poll took.
func (e *cEndpoint) completion(i int) done {
	c := &e.comps[i]
	return done{uint64(c.context), int(c.len), int(c.err), int(c.prov_errno)}
}

// The parts of an endpoint's own page.
const (
	pageFirstRecv = C.SAN_FIRST_RECV
	pageFirstSend = C.SAN_FIRST_SEND
	pageFence     = C.SAN_FENCE
)

// own is the endpoint's own page from off on, as n bytes.
func (e *cEndpoint) own(off, n int) span {
	return span{mem: uintptr(unsafe.Pointer(e.page)) + uintptr(off), n: n, desc: uintptr(e.page_desc)}
}

// ownBytes is the same memory.
func (e *cEndpoint) ownBytes(off, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(e.page), off)), n)
}

// span is memory for an operation. It is an address, not a pointer: whoever passes it keeps the memory alive and in its
// place. desc is the library's, and may be 0.
type span struct {
	mem  uintptr
	n    int
	desc uintptr
}

// spanOf is the span of b, which is pinned, or not Go's.
func spanOf(b []byte) span { return span{mem: uintptr(unsafe.Pointer(unsafe.SliceData(b))), n: len(b)} }

// memory is a registration of the library's.
type memory struct {
	c    *cMemory
	desc uintptr
	key  uint64
}

// register registers memory. key is used where the provider does not choose itself.
func (e *cEndpoint) register(s span, read, write bool, key uint64) (m memory, err error) {
	flag := func(b bool) C.int {
		if b {
			return 1
		}
		return 0
	}
	var (
		desc unsafe.Pointer
		rkey C.uint64_t
	)
	err = check("fi_mr_reg", C.san_register(e.c(), C.uintptr_t(s.mem), C.size_t(s.n), flag(read), flag(write), C.uint64_t(key),
		&m.c, &desc, &rkey))
	m.desc, m.key = uintptr(desc), uint64(rkey)
	return m, err
}

func (m memory) deregister() error { return check("fi_close of a registration", C.san_deregister(m.c)) }

func (e *cEndpoint) registerFence(key uint64) error {
	return check("fi_mr_reg", C.san_register_fence(e.c(), C.uint64_t(key)))
}

// The operations return libfabric's result, as they are too frequent for an error of their own. A desc comes from the
// library and is nothing that Go knows of.

func (e *cEndpoint) recv(s span, context uint64) int {
	return int(C.san_recv(e.c(), C.uintptr_t(s.mem), C.size_t(s.n), C.uintptr_t(s.desc), C.uint64_t(context)))
}

func (e *cEndpoint) send(s span, context uint64) int {
	return int(C.san_send(e.c(), C.uintptr_t(s.mem), C.size_t(s.n), C.uintptr_t(s.desc), C.uint64_t(context)))
}

func (e *cEndpoint) write(s span, addr, key, context uint64) int {
	return int(C.san_write(e.c(), C.uintptr_t(s.mem), C.size_t(s.n), C.uintptr_t(s.desc), C.uint64_t(addr), C.uint64_t(key),
		C.uint64_t(context)))
}

func (e *cEndpoint) rread(s span, addr, key, context uint64) int {
	return int(C.san_rread(e.c(), C.uintptr_t(s.mem), C.size_t(s.n), C.uintptr_t(s.desc), C.uint64_t(addr), C.uint64_t(key),
		C.uint64_t(context)))
}

func (e *cEndpoint) inject(a, b []byte, counted bool, context uint64) int {
	var c C.int
	if counted {
		c = 1
	}
	return int(C.san_inject(e.c(), (*C.uint8_t)(unsafe.SliceData(a)), C.size_t(len(a)), (*C.uint8_t)(unsafe.SliceData(b)),
		C.size_t(len(b)), c, C.uint64_t(context)))
}

// Results of operations.
const (
	resultAgain   = -int(C.FI_EAGAIN)
	codeCancelled = int(C.FI_ECANCELED)
	codeTruncated = int(C.FI_ETRUNC)
	codeKeyTaken  = syscall.Errno(C.FI_ENOKEY)
)

// within reports whether inner lies in outer.
func within(outer, inner []byte) bool {
	if len(inner) == 0 {
		return true
	}
	// Below outer the difference wraps round and is larger than any length.
	d := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	return d <= uintptr(len(outer)) && len(inner) <= len(outer)-int(d)
}
