package emu

import (
	"math/rand/v2"
	"sync"

	"sansock/provider"
)

// Step is a place where a provider can be made to fail.
type Step uint8

const (
	StepPrefixes       Step = iota + 1 // Prefixes
	StepListen                         // Listen
	StepDial                           // Dial, before the peer hears of it
	StepDialComplete                   // Dial, when the peer has accepted, which sees the end
	StepRequest                        // Listener.Accept, before it takes a request
	StepAccept                         // Request.Accept, before the peer's Dial succeeds: it fails
	StepAcceptComplete                 // Request.Accept, after that: the peer sees the end
	StepAllocate                       // Allocate
	StepRegister                       // Register
	StepExpose                         // Expose
	StepDeregister                     // Deregister, which then does nothing
	StepPostRecv                       // PostRecv, and so on: nothing is posted
	StepPostSend
	StepPostWrite
	StepPostRead
	StepTransfer // a message, write or read that is posted: it completes so, and the connection ends
	steps
)

var stepText = [steps]string{
	StepPrefixes:       "prefixes",
	StepListen:         "listen",
	StepDial:           "dial",
	StepDialComplete:   "dial complete",
	StepRequest:        "request",
	StepAccept:         "accept",
	StepAcceptComplete: "accept complete",
	StepAllocate:       "allocate",
	StepRegister:       "register",
	StepExpose:         "expose",
	StepDeregister:     "deregister",
	StepPostRecv:       "post receive",
	StepPostSend:       "post send",
	StepPostWrite:      "post write",
	StepPostRead:       "post read",
	StepTransfer:       "transfer",
}

// String returns the step in words.
func (s Step) String() string {
	if s < steps && s > 0 {
		return stepText[s]
	}
	return "unknown step"
}

// Steps returns all of them, so that a test can fail each.
func Steps() []Step {
	all := make([]Step, 0, steps-1)
	for s := Step(1); s < steps; s++ {
		all = append(all, s)
	}
	return all
}

// Fault is a rule that makes a step fail.
type Fault struct {
	Step        Step
	Nth         int             // only its n-th time with the provider, from 1; 0: every time
	Probability float64         // and then only with this chance; 0: surely
	Status      provider.Status // how; StatusLink if zero
}

// Faults is what makes steps fail. Both Hook and Rules may fail a step.
type Faults struct {
	// Hook, if set, is asked at every step and makes it fail by an error, best a provider.Status or
	// a
	// *provider.Error. It must not call the provider.
	Hook func(Step) error

	Rules []Fault

	// Seed is what the random decisions of Rules come from. Keys of memory do not: they cannot be
	// foretold.
	Seed uint64
}

// faults decides which steps fail. Every rule has its own random numbers, so that its k-th decision
// is the same in every run, whatever happens at other steps.
type faults struct {
	hook func(Step) error

	mu    sync.Mutex // a leaf
	rules []rule
}

type rule struct {
	Fault
	seen int
	rand *rand.Rand
}

func newFaults(c Faults) *faults {
	if c.Hook == nil && len(c.Rules) == 0 {
		return nil
	}
	f := &faults{hook: c.Hook}
	for i, r := range c.Rules {
		if r.Status == provider.StatusOK {
			r.Status = provider.StatusLink
		}
		f.rules = append(f.rules, rule{Fault: r, rand: rand.New(rand.NewPCG(c.Seed, uint64(i)))})
	}
	return f
}

// at is the error of a step, nil for success.
func (f *faults) at(s Step) error {
	if f == nil {
		return nil
	}
	if f.hook != nil {
		if err := f.hook(s); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for i := range f.rules {
		r := &f.rules[i]
		if r.Step != s {
			continue
		}
		r.seen++
		if r.Nth != 0 && r.seen != r.Nth || r.Probability != 0 && r.rand.Float64() >= r.Probability {
			continue
		}
		if err == nil {
			err = r.Status
		}
	}
	return err
}
