module conns

go 1.26
