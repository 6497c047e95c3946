package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"sansock/examples/internal/pathtest"
	"sansock/sannet"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Regexp(t, "^path: "+pathtest.Want()+"\nunary: 1048576 bytes\nstream: 1000 messages there and back, .* each\n$", out.String())
}

// start serves with the options, and returns a client, the address and the number of its connections.
func start(t *testing.T, opts ...grpc.ServerOption) (pb.TestServiceClient, string, *atomic.Int64) {
	l := pathtest.Listen(t)
	srv := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(srv, service{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var dials atomic.Int64
	cc, err := grpc.NewClient("passthrough:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			c, err := sannet.DialContext(ctx, "tcp", addr)
			if err == nil {
				pathtest.Check(t, c)
			}
			return c, err
		}))
	require.NoError(t, err)
	t.Cleanup(func() {
		cc.Close()
		srv.Stop()
		assert.NoError(t, <-served)
	})
	return pb.NewTestServiceClient(cc), l.Addr().String(), &dials
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestUnary(t *testing.T) {
	c, _, dials := start(t)
	for _, size := range []int32{0, 1, 1000, 100_000, 10 << 20} {
		r, err := c.UnaryCall(within(t), &pb.SimpleRequest{ResponseSize: size, Payload: payload(min(size, 3<<20))})
		require.NoError(t, err)
		assert.Len(t, r.Payload.Body, int(size))
	}
	_, err := c.EmptyCall(within(t), &pb.Empty{})
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	assert.Equal(t, int64(1), dials.Load())
}

func TestStreaming(t *testing.T) {
	c, _, dials := start(t)
	ctx := within(t)
	in, err := c.StreamingInputCall(ctx)
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, in.Send(&pb.StreamingInputCallRequest{Payload: payload(50_000)}))
	}
	r, err := in.CloseAndRecv()
	require.NoError(t, err)
	assert.Equal(t, int32(5_000_000), r.AggregatedPayloadSize)

	sizes := make([]*pb.ResponseParameters, 100)
	for i := range sizes {
		sizes[i] = &pb.ResponseParameters{Size: int32(i * 1000)}
	}
	out, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{ResponseParameters: sizes})
	require.NoError(t, err)
	for i := range sizes {
		m, err := out.Recv()
		require.NoError(t, err)
		assert.Len(t, m.Payload.Body, i*1000)
	}
	_, err = out.Recv()
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, int64(1), dials.Load())
}

// TestDeadline: a call that takes too long ends, and others on the connection go on.
func TestDeadline(t *testing.T) {
	c, _, dials := start(t)
	slow := &pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{IntervalUs: 1_800_000_000}}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s, err := c.StreamingOutputCall(ctx, slow)
	require.NoError(t, err)
	_, err = s.Recv()
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))

	ctx, cancel = context.WithCancel(t.Context())
	s, err = c.StreamingOutputCall(ctx, slow)
	require.NoError(t, err)
	cancel()
	_, err = s.Recv()
	assert.Equal(t, codes.Canceled, status.Code(err))

	_, err = c.UnaryCall(within(t), &pb.SimpleRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(1), dials.Load())
}

// TestKeepalive: the server probes a client that says nothing, and gives up on one that does not answer.
func TestKeepalive(t *testing.T) {
	_, addr, _ := start(t, grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 100 * time.Millisecond}))
	c, err := sannet.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	pathtest.Check(t, c)
	c.SetDeadline(time.Now().Add(30 * time.Second))
	const settings = 4
	_, err = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00"+string(rune(settings))+"\x00\x00\x00\x00\x00")
	require.NoError(t, err)
	var kinds []byte
	for {
		var header [9]byte
		if _, err = io.ReadFull(c, header[:]); err != nil {
			break
		}
		kinds = append(kinds, header[3])
		_, err = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(header[:])>>8))
		require.NoError(t, err)
	}
	assert.Equal(t, io.EOF, err)
	const ping = 6
	assert.Contains(t, kinds, byte(ping))
}

// TestReconnect: the client finds its way back when the server ends connections of a certain age.
func TestReconnect(t *testing.T) {
	c, _, dials := start(t, grpc.KeepaliveParams(keepalive.ServerParameters{
		MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: time.Minute}))
	for dials.Load() < 3 {
		_, err := c.UnaryCall(within(t), &pb.SimpleRequest{ResponseSize: 1000})
		require.NoError(t, err)
	}
}
