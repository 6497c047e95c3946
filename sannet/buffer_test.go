package sannet_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

func TestBufferErrors(t *testing.T) {
	l, err := sannet.Listen("san", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d, err := sannet.Dial("san", l.Addr().String())
	require.NoError(t, err)
	a, err := l.Accept()
	require.NoError(t, err)
	defer a.Close()
	c := d.(*sannet.Conn)

	_, err = c.NewBuffer(-1)
	assert.Error(t, err)
	b, err := c.NewBuffer(10)
	require.NoError(t, err)
	require.NoError(t, c.Close())

	_, err = c.WriteBuffer(b, 10)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, "write", op.Op)
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.Panics(t, func() { b.Release() }, "released although it was not sent")
	_, err = c.ReadBuffer()
	assert.ErrorIs(t, err, net.ErrClosed)
	_, err = c.NewBuffer(10)
	assert.ErrorIs(t, err, net.ErrClosed)

	_, err = a.(*sannet.Conn).ReadBuffer()
	assert.Equal(t, io.EOF, err)
}
