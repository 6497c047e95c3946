module sansock/examples/ssh

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/crypto v0.58.0
	sansock v0.0.0
)

require (
	github.com/libp2p/go-buffer-pool v0.1.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace sansock => ../..
