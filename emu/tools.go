package emu

import "sansock/provider"

// DropLink makes the connection of e, an endpoint of this package, swallow everything in both
// directions without a word to either end, as a partition does. It reports whether e is one.
func DropLink(e provider.Endpoint) bool { return onCore(e, (*endpoint).lose) }

// CutLink ends the connection of e, an endpoint of this package: both ends hear of it, with
// StatusLink. It reports whether e is one.
func CutLink(e provider.Endpoint) bool {
	return onCore(e, func(e *endpoint) { e.sever(provider.StatusLink) })
}

func onCore(e provider.Endpoint, do func(*endpoint)) bool {
	switch e := e.(type) {
	case *endpoint:
		do(e)
	case knobbed:
		do(e.endpoint)
	default:
		return false
	}
	return true
}

// CutLinks is CutLink for every endpoint of the provider that is not closed.
func (p *Provider) CutLinks() {
	for _, e := range p.endpoints() {
		e.sever(provider.StatusLink)
	}
}

func (p *Provider) endpoints() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	var es []*endpoint
	for e := p.newest; e != nil; e = e.older {
		es = append(es, e)
	}
	return es
}

// Stats is what a provider has in use.
type Stats struct {
	Listeners     int // open
	Endpoints     int // not closed
	Registrations int // of those: not deregistered
}

// Stats counts what the provider has in use, so that a test can show that nothing is left.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	s := Stats{Listeners: len(p.listeners)}
	p.mu.Unlock()
	for _, e := range p.endpoints() {
		s.Endpoints++
		e.lock()
		s.Registrations += e.table.Len()
		e.unlock()
	}
	return s
}

// DropLinks is DropLink for every endpoint of the provider that is not closed.
func (p *Provider) DropLinks() {
	for _, e := range p.endpoints() {
		e.lose()
	}
}
