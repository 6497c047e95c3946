package main

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// service is gRPC's own test service: it answers with as many bytes as it is asked for.
type service struct {
	pb.UnimplementedTestServiceServer
}

func payload(size int32) *pb.Payload {
	return &pb.Payload{Body: make([]byte, max(0, min(size, 64<<20)))}
}

func (service) UnaryCall(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: payload(r.ResponseSize)}, nil
}

func (service) StreamingInputCall(s grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]) error {
	var n int32
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		}
		if err != nil {
			return err
		}
		n += int32(len(r.Payload.GetBody()))
	}
}

func (service) StreamingOutputCall(r *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	return answer(r, s)
}

func (service) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := answer(r, s); err != nil {
			return err
		}
	}
}

type sender interface {
	Send(*pb.StreamingOutputCallResponse) error
	Context() context.Context
}

// answer sends what r asks for, with the pauses it asks for.
func answer(r *pb.StreamingOutputCallRequest, s sender) error {
	for _, p := range r.ResponseParameters {
		select {
		case <-time.After(time.Duration(p.IntervalUs) * time.Microsecond):
		case <-s.Context().Done():
			return s.Context().Err()
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: payload(p.Size)}); err != nil {
			return err
		}
	}
	return nil
}
