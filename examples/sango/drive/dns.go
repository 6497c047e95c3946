package main

import (
	"fmt"

	"github.com/miekg/dns"
)

func dnsClient(addr string) error {
	c := &dns.Client{Net: "tcp"}
	question := func() *dns.Msg { return new(dns.Msg).SetQuestion("host.example.", dns.TypeA) }
	check := func(r *dns.Msg, err error) error {
		if err == nil && len(r.Answer) != 1 {
			err = fmt.Errorf("no answer: %v", r)
		}
		return err
	}
	// The server ends a connection after some queries.
	conn, n := (*dns.Conn)(nil), 0
	err := latency("query", func() (err error) {
		if n%100 == 0 {
			if conn != nil {
				conn.Close()
			}
			if conn, err = c.Dial(addr); err != nil {
				return err
			}
		}
		n++
		r, _, err := c.ExchangeWithConn(question(), conn)
		return check(r, err)
	})
	if err != nil {
		return err
	}
	return rate("queries, a connection each", 4, func() error {
		r, _, err := c.Exchange(question(), addr)
		return check(r, err)
	})
}
