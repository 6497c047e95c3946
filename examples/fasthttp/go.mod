module sansock/examples/fasthttp

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/valyala/fasthttp v1.78.0
	go.uber.org/goleak v1.3.0
	sansock v0.0.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/libp2p/go-buffer-pool v0.1.0 // indirect
	github.com/molecule-man/go-brrr v1.3.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace sansock => ../..
