package providertest_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// TestTolerance shows that the suite takes what the contract leaves to the hardware.
func TestTolerance(t *testing.T) {
	for _, m := range tolerated {
		t.Run(m.name, func(t *testing.T) {
			c := m.config()
			c.Waive = map[string]string{"cost/allocations": "the wrapper allocates"}
			for _, rule := range m.rules {
				c.Waive[rule] = "see " + m.name
			}
			assert.Empty(t, check(t, c))
		})
	}
}

// TestLimits shows that the suite keeps to the limits of each end where the other's are wider.
func TestLimits(t *testing.T) {
	narrow := emu.Config{MaxMessage: 300, MaxInline: 100, MaxRDMA: 700, MaxRecvs: 16, MaxSends: 2, MaxRDMAs: 2}
	for i := range 2 {
		assert.Empty(t, check(t, providertest.Config{Rounds: 60, Open: func() (provider.Provider, provider.Provider, error) {
			c := [2]emu.Config{}
			c[i] = narrow
			var p [2]provider.Provider
			fabric := emu.NewFabric()
			for k := range p {
				c[k] = modest(c[k])
				c[k].Fabric = fabric
				var err error
				if p[k], err = emu.New(c[k]); err != nil {
					return nil, nil, err
				}
			}
			return p[0], p[1], nil
		}}))
	}
}

// TestWaived shows that what is waived is not tested.
func TestWaived(t *testing.T) {
	m := tolerated[len(tolerated)-1]
	c := m.config()
	assert.NotEmpty(t, check(t, c, m.rules...))
	c.Waive = map[string]string{m.rules[0]: "cannot tell"}
	assert.Empty(t, check(t, c, m.rules...))
}

// races are the rules for which a wrapper would need the emulator's locks.
var races = []string{"protect/deregister-race", "protect/close-race"}

// aborted is the completion of a read that was cut short.
func aborted(r provider.RDMA) provider.Completion {
	return provider.Completion{Context: r.Context, Op: provider.OpRead, Status: provider.StatusAborted}
}

// tolerated are not mistakes. Their rules are waived.
var tolerated = []mutant{
	{name: "refused writes complete as successes", end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Op == provider.OpWrite && c.Status == provider.StatusAccess {
				c.Status = provider.StatusOK
			}
			return true
		}
	}},
	{name: "refused accesses are aborted", end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Status == provider.StatusAccess && c.Op != provider.OpDisconnect {
				c.Status = provider.StatusAborted
			}
			return true
		}
	}},
	{name: "refused accesses spare the connection", rules: races, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			p := e.peer()
			x := e.find(func(x *exposure) bool {
				return x.Descriptor == r.Remote && x.owner == p && x.rights&needs(op) != 0 && !x.gone
			})
			if p == nil || p.Closed() || e.Closed() || inside(x, r) != nil || len(r.Local.Bytes) > e.Attributes().MaxRDMA {
				return e.PassRDMA(op, r)
			}
			e.Inject(provider.Completion{Context: r.Context, Op: op, Status: provider.StatusAccess})
			return nil
		}
	}},
	{name: "the owner has to look for a read to go on", rules: races, end: func(e *faultyEnd) {
		var mu sync.Mutex
		var waiting []provider.RDMA
		over := false // OpDisconnect has come
		e.On.See = func(c *provider.Completion) bool {
			if c.Op != provider.OpDisconnect {
				return true
			}
			mu.Lock()
			defer mu.Unlock()
			over = true
			e.Mu.Lock()
			defer e.Mu.Unlock()
			for _, r := range waiting {
				e.Extra = append(e.Extra, aborted(r))
			}
			waiting = nil
			e.Extra = append(e.Extra, *c)
			return false
		}
		flush := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range waiting {
				if err := e.PassRDMA(provider.OpRead, r); err != nil {
					e.Inject(aborted(r))
				}
			}
			waiting = nil
		}
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			p := e.peer()
			if op == provider.OpWrite || p == nil || len(r.Local.Bytes) > e.Attributes().MaxRDMA {
				return e.PassRDMA(op, r)
			}
			mu.Lock()
			defer mu.Unlock()
			if over || e.Closed() || len(waiting) == e.Attributes().MaxRDMAs {
				return e.PassRDMA(op, r)
			}
			waiting = append(waiting, r)
			p.Mu.Lock()
			p.look = flush
			p.Mu.Unlock()
			return nil
		}
		e.On.Poll = func(c []provider.Completion) int {
			e.Mu.Lock()
			look := e.look
			e.Mu.Unlock()
			if look != nil {
				look()
			}
			return e.PassPoll(c)
		}
		e.On.Close = func() error {
			flush()
			if e.look != nil {
				e.look()
			}
			return e.Endpoint.Close()
		}
		e.On.Deregister = func(h provider.Handle) error {
			flush()
			if e.look != nil {
				e.look()
			}
			return e.Endpoint.Deregister(h)
		}
	}},
	{name: "registration of local memory, small limits", conf: emu.Config{LocalRegistration: true, MaxMessage: 512, MaxInline: -1,
		MaxRDMA: 5000, MaxRecvs: 16, MaxSends: 2, MaxRDMAs: 2}},
	{name: "solicited messages cannot be told apart", rules: []string{"wake/unsolicited"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool {
			if w == provider.WakeSolicited {
				w = provider.WakeAny
			}
			return e.Endpoint.Arm(w)
		}
	}},
}

// TestRules shows that rules are told apart and described.
func TestRules(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range providertest.Rules() {
		assert.Regexp(t, `^[a-z]+/[a-z-]+$`, r.Name)
		assert.False(t, seen[r.Name], r.Name)
		assert.Regexp(t, `\.\)?$`, r.Promise)
		seen[r.Name] = true
	}
}
