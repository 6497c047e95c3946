package sanswitch

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sansock/internal/hostaddr"
	"sansock/provider"
)

// How long the prefix table is used before the providers are asked again. Addresses come and go,
// so a miss is doubted sooner than a hit, where nobody tells of changes.
const (
	tableTTL = 2 * time.Second
	missTTL  = 100 * time.Millisecond
)

// Reading takes time where there are many addresses. No more than one part in readShare goes into
// what is read again because it is old, unless that would be older than maxAge, and none in
// changeShare into what has changed again.
const (
	readShare   = 50
	changeShare = 4
	maxAge      = 10 * time.Second
)

// errReading is why there is no way while the table takes its time.
var errReading = errors.New("the addresses of this host are still being read")

// table knows which provider reaches which addresses. Providers are asked by a goroutine of its
// own, one at a time, so that who looks something up waits for no longer than it likes.
type table struct {
	providers []provider.Provider // in order of preference

	// changes returns a number that changes when the addresses of the host do, and whether it
	// knows.
	changes func() (uint64, bool)

	now atomic.Pointer[reading] // the last one that is complete; nil: there is none

	mu sync.Mutex // a leaf, held for a moment
	// +checklocks:mu
	pending *reading // the one under way; nil: there is none
}

// reading is what the providers say at one time.
type reading struct {
	began time.Time
	gen   uint64        // of the addresses, before anybody was asked
	done  chan struct{} // closed when what follows is set
	asked time.Time
	took  time.Duration
	index *index
	err   error // why the ways of a provider are missing
}

func newTable(ps []provider.Provider) *table {
	return &table{providers: ps, changes: hostaddr.Generation}
}

// lookup returns the ways to dst, the best first, one for each provider at most. If there are none, the error
// says why that may be. It waits for providers no longer than patience.
func (t *table) lookup(ctx context.Context, dst netip.Addr, patience time.Duration) ([]way, error) {
	return t.find(ctx, dst.Unmap().WithZone(""), patience, (*index).to)
}

// serving returns a way for each provider that serves the local address, in order of preference,
// likewise. An unspecified address is served by all that serve some address of its family.
func (t *table) serving(
	ctx context.Context, local netip.Addr, patience time.Duration,
) ([]way, error) {
	return t.find(ctx, local.Unmap().WithZone(""), patience, (*index).at)
}

// lookFunc is a method of an index.
type lookFunc func(*index, netip.Addr) []way

// find looks a up in a table that is fresh enough.
func (t *table) find(
	ctx context.Context, a netip.Addr, patience time.Duration, look lookFunc,
) ([]way, error) {
	gen, watched := t.changes()
	r := t.now.Load()
	if r == nil || r.stale(a, look, gen, watched) {
		pending := t.read(gen)
		switch {
		case r != nil && a.IsLoopback() && len(look(r.index, a)) > 0:
			// That one does not go away. Others will find what is read.
		case !t.wait(ctx, pending, patience):
			return nil, errReading // what may have changed is not used: TCP knows better
		case pending.gen < gen && !t.wait(ctx, t.read(gen), patience):
			return nil, errReading
		}
		r = t.now.Load()
	}
	if found := look(r.index, a); len(found) > 0 {
		return found, nil
	}
	return nil, r.err
}

// stale reports whether what r says about a needs to be read again.
func (r *reading) stale(a netip.Addr, look lookFunc, gen uint64, watched bool) bool {
	if watched && gen != r.gen {
		return true
	}
	ttl := tableTTL
	if !watched && len(look(r.index, a)) == 0 {
		ttl = missTTL
	}
	return time.Since(r.began) >= max(ttl, min(readShare*r.took, maxAge))
}

// wait waits for a reading, for no longer than patience after that began. A provider that hangs
// does not cost every dial as much.
func (t *table) wait(ctx context.Context, r *reading, patience time.Duration) bool {
	timer := time.NewTimer(time.Until(r.began.Add(patience)))
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// read returns a reading that knows of the addresses of gen, and begins one if there is none
// under way.
func (t *table) read(gen uint64) *reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending != nil {
		return t.pending
	}
	r := &reading{began: time.Now(), gen: gen, done: make(chan struct{})}
	t.pending = r
	go t.ask(r, t.now.Load())
	return r
}

// ask asks the providers, not too soon after the last time.
func (t *table) ask(r, last *reading) {
	if last != nil {
		time.Sleep(time.Until(last.asked.Add(changeShare * last.took)))
	}
	r.asked = time.Now()
	var ways []way
	for rank, p := range t.providers {
		prefixes, err := p.Prefixes()
		if err != nil && r.err == nil {
			r.err = err
		}
		for _, prefix := range prefixes {
			if prefix = unmap(prefix); prefix.IsValid() {
				local, network := prefix.Addr(), prefix.Masked()
				ways = append(ways, way{provider: p, rank: rank, local: local, network: network})
			}
		}
	}
	r.index = newIndex(ways)
	r.took = time.Since(r.asked)
	t.mu.Lock()
	t.pending = nil
	t.now.Store(r)
	t.mu.Unlock()
	close(r.done)
}
