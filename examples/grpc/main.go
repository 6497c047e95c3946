// Grpc is a gRPC server and its client, over the SAN or over TCP.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	pb.RegisterTestServiceServer(srv, service{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	err = client(out, l.Addr().String())
	srv.GracefulStop()
	return errors.Join(err, <-served)
}

func client(out io.Writer, addr string) error {
	cc, err := grpc.NewClient("passthrough:"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := sannet.DialContext(ctx, "tcp", addr)
			if err == nil {
				info, _ := sannet.InfoOf(c)
				fmt.Fprintln(out, "path:", info)
			}
			return c, err
		}))
	if err != nil {
		return err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := pb.NewTestServiceClient(cc)

	r, err := c.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "unary:", len(r.Payload.Body), "bytes")

	s, err := c.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	const rounds = 1000
	start := time.Now()
	for range rounds {
		err := s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{Size: 10}}})
		if err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "stream: %d messages there and back, %v each\n", rounds, (time.Since(start) / rounds).Round(100*time.Nanosecond))
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err := s.Recv(); err != io.EOF {
		return fmt.Errorf("stream ended with %v", err)
	}
	return nil
}
