package ofi

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestPrivateData(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 2*provider.MaxReject)
	for _, c := range []struct{ in, want private }{
		{private{kind: kindRequest, dialed: 80, local: 65535}, private{kind: kindRequest, dialed: 80, local: 65535}},
		{private{kind: kindRequest}, private{kind: kindRequest}},
		{private{kind: kindAccept}, private{kind: kindAccept, reason: []byte{}}},
		{private{kind: kindRefuse, reason: []byte("why")}, private{kind: kindRefuse, reason: []byte("why")}},
		{private{kind: kindRefuse, reason: long}, private{kind: kindRefuse, reason: long[:provider.MaxReject]}},
		{private{kind: kindFailed}, private{kind: kindFailed, reason: []byte{}}},
	} {
		b := c.in.encode()
		require.LessOrEqual(t, len(b), maxPrivate)
		for _, junk := range []int{0, 1, 200} {
			got, ok := decodePrivate(append(bytes.Clone(b), make([]byte, junk)...))
			require.True(t, ok)
			require.Equal(t, c.want, got)
		}
		for n := range b {
			_, ok := decodePrivate(b[:n])
			require.False(t, ok, "cut to %d bytes", n)
		}
	}
}

func TestPrivateDataOfOthers(t *testing.T) {
	good := private{kind: kindRequest, dialed: 1, local: 2}.encode()
	change := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	for _, b := range [][]byte{nil, make([]byte, 55), []byte("GET / HTTP/1.1\r\n"), change(3, '2'), change(4, 0),
		change(4, byte(kinds)), change(4, 255), change(5, 3), change(5, 5), change(5, 255)} {
		_, ok := decodePrivate(b)
		require.False(t, ok, "%q", b)
	}
}

func FuzzPrivateData(f *testing.F) {
	f.Add(private{kind: kindRequest, dialed: 80}.encode())
	f.Add(private{kind: kindRefuse, reason: []byte("why")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := decodePrivate(b)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(p.reason), provider.MaxReject)
		again, ok := decodePrivate(p.encode())
		require.True(t, ok)
		require.Equal(t, p, again)
	})
}
