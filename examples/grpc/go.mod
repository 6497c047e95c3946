module sansock/examples/grpc

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	google.golang.org/grpc v1.85.0
	sansock v0.0.0
)

require (
	github.com/libp2p/go-buffer-pool v0.1.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace sansock => ../..
