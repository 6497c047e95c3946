package providertest

import (
	"encoding/binary"

	"sansock/provider"
)

var isolationRules = []rule{
	{Rule{"isolation/connections", "Connections at the same time do not mix up their messages and writes."}, provesIsolation},
	{Rule{"isolation/failure", "A connection that ends, or breaks the rules, harms no other."}, provesFailureIsolation},
}

const connections = 6

func provesIsolation(x *rig) {
	var joins []func()
	for i := range connections {
		a, _ := x.connect()
		joins = append(joins, x.spawn(func() { a.converse(uint64(i), max(4, x.Rounds/4)) }))
	}
	for _, join := range joins {
		join()
	}
}

// converse exchanges messages and writes that bear the number of the connection.
func (e *end) converse(number uint64, rounds int) {
	x := e.x
	type side struct {
		target, src, recv     *mem
		local, into, receives provider.Region
	}
	sides := make(map[*end]side)
	for _, p := range e.both() {
		s := side{target: x.mem(p, "target", 256), src: x.mem(p, "source", 256), recv: x.mem(p, "receive", 64)}
		s.local, s.into, s.receives = p.register(s.src), p.expose(s.target, provider.RightWrite), p.register(s.recv)
		sides[p] = s
	}
	for round := range rounds {
		for _, from := range e.both() {
			s, t := sides[from], sides[from.peer]
			noise(s.src.b, number<<32|uint64(round))
			r := from.peer.must(from.peer.recv(whole(t.receives)))
			w := from.must(from.write(whole(s.local), t.into.Descriptor, 0))
			var data [16]byte
			binary.LittleEndian.PutUint64(data[:], number)
			binary.LittleEndian.PutUint64(data[8:], uint64(round))
			from.say(data[:], true)
			if n := from.peer.ok(r); n != len(data) {
				x.fatalf("%s: a message of %d bytes arrived with %d", from.peer.name, len(data), n)
			}
			if !t.recv.want("a message of this connection", 0, data[:]) ||
				!t.target.want("a write of this connection", 0, s.src.b) {
				x.giveUp()
			}
			from.ok(w)
		}
	}
}

func provesFailureIsolation(x *rig) {
	var ends []*end
	for range connections {
		a, _ := x.connect()
		ends = append(ends, a)
	}
	for i := range 6 {
		var joins []func()
		for k, e := range ends {
			joins = append(joins, x.spawn(func() { e.converse(uint64(k), 4) }))
		}
		// Meanwhile another breaks the rules, closes, and is cut short.
		in, vic := x.connect()
		m := x.mem(vic, "exposed memory", 256)
		d := vic.expose(m, provider.RightWrite).Descriptor
		switch i % 3 {
		case 0:
			x.refused("a write beyond the memory", in, vic, access{provider.OpWrite, d, 250, 64}, m)
		case 1:
			vic.hear(8)
			in.send(in.scratch(64), false) // longer than the receive
		}
		vic.recv(whole(vic.register(x.mem(vic, "receive", 16)))) // fails where the connection has ended
		in.close()
		vic.gone()
		vic.close()
		for _, join := range joins {
			join()
		}
	}
	for k, e := range ends {
		e.converse(uint64(k), 4)
	}
}
