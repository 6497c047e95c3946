// Sql is a program that uses database/sql with the driver pgx, and a PostgreSQL server, over the SAN or over TCP. The server
// is PostgreSQL as it is installed, started for the occasion behind a forwarder, so that it needs no change.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	pg, err := startPostgres()
	if err != nil {
		return err
	}
	defer pg.stop()
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- forward(l, pg.socket) }()
	err = queries(out, l.Addr().String())
	return errors.Join(err, l.Close(), <-served)
}

// config is for a driver that tells made about each connection.
func config(addr string, made func(net.Conn)) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := sannet.DialContext(ctx, network, addr)
		if err == nil {
			made(c)
		}
		return c, err
	}
	return c, nil
}

func queries(out io.Writer, addr string) error {
	c, err := config(addr, func(c net.Conn) {
		info, _ := sannet.InfoOf(c)
		fmt.Fprintln(out, "path:", info)
	})
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*c)
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (id int PRIMARY KEY, name text)"); err != nil {
		return err
	}
	const rows = 1000
	start := time.Now()
	err = transaction(ctx, db, func(tx *sql.Tx) error {
		s, err := tx.PrepareContext(ctx, "INSERT INTO t VALUES ($1, $2)")
		if err != nil {
			return err
		}
		for i := range rows {
			if _, err := s.ExecContext(ctx, i, fmt.Sprint("name ", i)); err != nil {
				return err
			}
		}
		return s.Close()
	})
	if err != nil {
		return err
	}
	each := time.Since(start) / rows
	var n, sum int
	if err := db.QueryRowContext(ctx, "SELECT count(*), sum(id) FROM t").Scan(&n, &sum); err != nil {
		return err
	}
	fmt.Fprintf(out, "rows: %d, of which the sum is %d, %v each\n", n, sum, each.Round(100*time.Nanosecond))
	return nil
}

func transaction(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing is left to roll back after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}
