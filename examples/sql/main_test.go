package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	err := run(&out)
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Regexp(t, "^path: "+pathtest.Want()+"\nrows: 1000, of which the sum is 499500, .* each\n$", out.String())
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestDriver runs against one server, as it takes a while to start.
func TestDriver(t *testing.T) {
	pg, err := startPostgres()
	if errors.Is(err, errNotInstalled) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer pg.stop()
	l := pathtest.Listen(t)
	served := make(chan error, 1)
	go func() { served <- forward(l, pg.socket) }()
	defer func() {
		l.Close()
		assert.NoError(t, <-served)
	}()
	c, err := config(l.Addr().String(), func(c net.Conn) { pathtest.Check(t, c) })
	require.NoError(t, err)
	db := stdlib.OpenDB(*c)
	defer db.Close()

	t.Run("large values", func(t *testing.T) {
		for _, size := range []int{0, 1, 100_000, 10 << 20} {
			sent := strings.Repeat("x", size)
			var got string
			require.NoError(t, db.QueryRowContext(within(t), "SELECT $1::text", sent).Scan(&got))
			assert.True(t, sent == got)
		}
		var n int
		rows, err := db.QueryContext(within(t), "SELECT repeat('x', 100) FROM generate_series(1, 50000)")
		require.NoError(t, err)
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err())
		assert.Equal(t, 50_000, n)
	})
	t.Run("many connections", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for i := range 20 {
					var n int
					assert.NoError(t, db.QueryRowContext(within(t), "SELECT $1::int + 1", i).Scan(&n))
					assert.Equal(t, i+1, n)
				}
			})
		}
		wg.Wait()
	})
	t.Run("cancellation", func(t *testing.T) {
		// The driver moves the deadline into the past to wake its own Read, and gives the connection up.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := db.ExecContext(ctx, "SELECT pg_sleep(3600)")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NoError(t, db.PingContext(within(t)))
	})
	t.Run("error of the server", func(t *testing.T) {
		_, err := db.ExecContext(within(t), "SELECT 1/0")
		var pe *pgconn.PgError
		require.ErrorAs(t, err, &pe)
		assert.Equal(t, "22012", pe.Code)
	})
	t.Run("connection ended by the server", func(t *testing.T) {
		var pid int
		conn, err := db.Conn(within(t))
		require.NoError(t, err)
		require.NoError(t, conn.QueryRowContext(within(t), "SELECT pg_backend_pid()").Scan(&pid))
		_, err = db.ExecContext(within(t), "SELECT pg_terminate_backend($1, 10000)", pid)
		require.NoError(t, err)
		err = conn.QueryRowContext(within(t), "SELECT 1").Scan(&pid)
		assert.ErrorContains(t, err, "terminating connection")
		conn.Close()
		assert.NoError(t, db.PingContext(within(t)))
	})
	t.Run("copy and notify", func(t *testing.T) {
		ctx := within(t)
		conn, err := pgx.ConnectConfig(ctx, c)
		require.NoError(t, err)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "CREATE TABLE bulk (id int, text text)")
		require.NoError(t, err)
		const rows = 50_000
		n, err := conn.CopyFrom(ctx, pgx.Identifier{"bulk"}, []string{"id", "text"},
			pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i, strings.Repeat("y", 50)}, nil }))
		require.NoError(t, err)
		assert.Equal(t, int64(rows), n)
		_, err = conn.Exec(ctx, "LISTEN news")
		require.NoError(t, err)
		_, err = db.ExecContext(ctx, "NOTIFY news, 'extra'")
		require.NoError(t, err)
		m, err := conn.WaitForNotification(ctx)
		require.NoError(t, err)
		assert.Equal(t, "extra", m.Payload)
		// A wait that is given up leaves the connection usable.
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err = conn.WaitForNotification(short)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = conn.Exec(ctx, "SELECT 1")
		assert.NoError(t, err)
	})
	t.Run("transactions", func(t *testing.T) {
		_, err := db.ExecContext(within(t), "CREATE TABLE tx (id int)")
		require.NoError(t, err)
		failed := errors.New("no")
		err = transaction(within(t), db, func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO tx VALUES (1)")
			return errors.Join(err, failed)
		})
		assert.ErrorIs(t, err, failed)
		var n int
		require.NoError(t, db.QueryRowContext(within(t), "SELECT count(*) FROM tx").Scan(&n))
		assert.Zero(t, n)
	})
}
