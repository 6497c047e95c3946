package sanswitch

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// resolver returns a Resolver for which name has these addresses, and no other name has any. It never leaves the
// process.
func resolver(t testing.TB, name string, addrs ...string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for {
				var length [2]byte
				if _, err := io.ReadFull(server, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				b := answerQuery(t, query, name, addrs)
				b = append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
				if _, err := server.Write(b); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

func answerQuery(t testing.TB, query []byte, name string, addrs []string) []byte {
	var m dnsmessage.Message
	require.NoError(t, m.Unpack(query))
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	q := m.Questions[0]
	if q.Name.String() != name+"." {
		m.RCode = dnsmessage.RCodeNameError
	} else {
		for _, s := range addrs {
			a := netip.MustParseAddr(s)
			r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}}
			switch {
			case q.Type == dnsmessage.TypeA && a.Is4():
				r.Body = &dnsmessage.AResource{A: a.As4()}
			case q.Type == dnsmessage.TypeAAAA && a.Is6():
				r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
			default:
				continue
			}
			m.Answers = append(m.Answers, r)
		}
	}
	b, err := m.Pack()
	require.NoError(t, err)
	return b
}
