package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

type service struct {
	pb.UnimplementedTestServiceServer
}

// UnaryCall answers with as many bytes as are asked for.
func (service) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, r.ResponseSize)}}, nil
}

func serveGRPC(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pb.RegisterTestServiceServer(s, service{})
	return s.Serve(l)
}

func grpcClient(addr string) error {
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	c := pb.NewTestServiceClient(cc)
	call := func() error {
		_, err := c.UnaryCall(context.Background(), &pb.SimpleRequest{ResponseSize: 100})
		return err
	}
	if err := latency("call", call); err != nil {
		return err
	}
	return rate("calls, 8 callers", 8, call)
}
