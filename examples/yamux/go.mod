module sansock/examples/yamux

go 1.26.0

require (
	github.com/hashicorp/yamux v0.1.2
	github.com/stretchr/testify v1.12.1
	sansock v0.0.0
)

require (
	github.com/libp2p/go-buffer-pool v0.1.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace sansock => ../..
