package sannet_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// Data that a program makes in a Buffer is sent from where it is, and read where it arrived.
func ExampleConn_NewBuffer() {
	l, err := sannet.Listen("san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := sannet.Dial("san", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		san := c.(*sannet.Conn)
		b, err := san.NewBuffer(64)
		if err != nil {
			log.Fatal(err)
		}
		n := copy(b.Bytes(), "made in place")
		if _, err := san.WriteBuffer(b, n); err != nil { // releases b
			log.Fatal(err)
		}
	}()

	c, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for {
		b, err := c.(*sannet.Conn).ReadBuffer()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", b.Bytes())
		b.Release()
	}
	// Output: made in place
}

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
