package sannet_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

func TestUrgent(t *testing.T) {
	p := sanPath(t)
	client, server, err := p.connect("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer client.Close()
	defer server.Close()
	c, s := client.(*sannet.Conn), server.(*sannet.Conn)
	ctx := context.Background()

	_, err = c.Write([]byte("12345"))
	require.NoError(t, err)
	require.NoError(t, c.WriteUrgent(ctx, []byte("now")))
	m, err := s.ReadUrgent(ctx)
	require.NoError(t, err)
	assert.Equal(t, sannet.Urgent{Data: []byte("now"), Ahead: 5}, m)

	err = c.WriteUrgent(ctx, make([]byte, sannet.MaxUrgent+1))
	assert.ErrorIs(t, err, syscall.EMSGSIZE)
	assert.EqualError(t, err, "write tcp "+c.LocalAddr().String()+"->"+c.RemoteAddr().String()+": sendmsg: message too long")
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = s.ReadUrgent(brief)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	assert.True(t, ne.Timeout())

	require.NoError(t, c.CloseWrite())
	_, err = s.ReadUrgent(ctx)
	assert.Equal(t, io.EOF, err, "bare")
	require.NoError(t, c.Close())
	assert.ErrorIs(t, c.WriteUrgent(ctx, []byte("x")), net.ErrClosed)

	var none *sannet.Conn
	assert.Equal(t, syscall.EINVAL, none.WriteUrgent(ctx, nil))
	_, err = none.ReadUrgent(ctx)
	assert.Equal(t, syscall.EINVAL, err)
}
