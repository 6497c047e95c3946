package sannet_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStuckReader: readers that never read, with writers that always have more, do not stop the other connections between the
// same two ends, neither while they fill up nor after.
func TestStuckReader(t *testing.T) {
	for _, size := range []int{64, 8 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := tcpPath(t)
			t.Run(p.name, func(t *testing.T) { testStuckReader(t, p, size) })
			onPaths(t, func(t *testing.T, p path) { testStuckReader(t, p, size) })
			if runtime.GOOS == "linux" {
				p := acrossPath(t, startChild(t))
				t.Run(p.name, func(t *testing.T) { testStuckReader(t, p, size) })
			}
		})
	}
}

// endless is more than any carrier holds for a reader.
const endless = 256 << 20

func testStuckReader(t *testing.T, p path, size int) {
	l, err := p.listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	pair := func() (client, server net.Conn) {
		client, err := p.dial(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		server, err = l.Accept()
		require.NoError(t, err)
		client.SetDeadline(time.Now().Add(stuck))
		return client, server
	}

	// One writer at each end, except where the other is a process of its own, which does what it is told with much ado.
	var written atomic.Int64
	var writers sync.WaitGroup
	var ends []net.Conn
	for i := range 2 {
		client, server := pair()
		ends = append(ends, client, server)
		from := client
		if i == 1 && p.rest == nil {
			from = server
		}
		writers.Go(func() {
			b := make([]byte, size)
			for done := 0; done < endless; done += size {
				n, err := from.Write(b)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
			t.Error("what nobody reads was written")
		})
	}

	var others [8]net.Conn
	var servers sync.WaitGroup
	for i := range others {
		client, server := pair()
		others[i] = client
		servers.Go(func() {
			defer server.Close()
			b := make([]byte, 1000)
			for {
				if _, err := io.ReadFull(server, b); err != nil {
					return
				}
				if _, err := server.Write(b); err != nil {
					return
				}
			}
		})
	}
	roundTrips := func() {
		var clients sync.WaitGroup
		for i, c := range others {
			clients.Go(func() {
				sent, got := pattern(1000 + i)[i:], make([]byte, 1000)
				for range 50 {
					_, err := c.Write(sent)
					assert.NoError(t, err)
					_, err = io.ReadFull(c, got)
					assert.NoError(t, err)
					assert.Equal(t, sent, got)
				}
			})
		}
		clients.Wait()
	}
	// The writers count as stuck when they wrote nothing during all that.
	for before := int64(-1); before != written.Load() && !t.Failed(); {
		before = written.Load()
		roundTrips()
	}
	for _, c := range ends {
		c.Close()
	}
	for _, c := range others {
		c.Close()
	}
	writers.Wait()
	servers.Wait()
}
