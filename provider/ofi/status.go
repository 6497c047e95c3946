//go:build ofi && cgo && linux

package ofi

import (
	"syscall"

	"sansock/provider"
)

// What the verbs provider gives as its own number of a failed operation (ibv_wc_status).
const (
	wcLocalLength   = 1
	wcLocalProtect  = 4
	wcRemoteInvalid = 9
	wcRemoteAccess  = 10
	wcNoReceive     = 13
)

// statusOf is the status of a completion.
func statusOf(d done) provider.Status {
	switch d.code {
	case 0:
		return provider.StatusOK
	case codeCancelled, int(syscall.ECONNRESET), int(syscall.EPIPE), int(syscall.ENOTCONN), int(syscall.ESHUTDOWN):
		return provider.StatusAborted
	case codeTruncated, int(syscall.EMSGSIZE):
		return provider.StatusTooLong
	case int(syscall.EIO):
		switch d.prov {
		case wcLocalLength, wcRemoteInvalid:
			return provider.StatusTooLong
		case wcLocalProtect:
			return provider.StatusLocal
		case wcRemoteAccess:
			return provider.StatusAccess
		case wcNoReceive:
			return provider.StatusNotReady
		}
	case int(syscall.EACCES), int(syscall.EPERM):
		return provider.StatusAccess
	}
	return provider.StatusLink
}

// registerStatus is the status of a failed registration.
func registerStatus(err error) provider.Status {
	switch codeOf(err) {
	case syscall.ENOMEM, syscall.EAGAIN, syscall.EFAULT:
		return provider.StatusNoMemory
	}
	return provider.StatusLimit
}

// connectStatus is the status of a connection that the fabric could not make. Only sockets know as much of a host
// as TCP does.
func connectStatus(fabric string, code syscall.Errno) provider.Status {
	switch code {
	case syscall.ECONNREFUSED:
		return provider.StatusNoListener // nothing of this package has rejected it
	case syscall.ETIMEDOUT:
		return provider.StatusTimeout
	case syscall.EADDRINUSE:
		return provider.StatusAddrInUse
	case syscall.EADDRNOTAVAIL:
		return provider.StatusAddrNotAvail
	case syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
		return provider.StatusNoMemory
	}
	if fabric == fabricTCP {
		switch code {
		case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			return provider.StatusUnreachable
		case syscall.ENOPROTOOPT, syscall.EIO, syscall.ECONNRESET, syscall.EPIPE, syscall.ENOTCONN:
			return provider.StatusNoListener // something else does
		}
	}
	return provider.StatusLink
}
