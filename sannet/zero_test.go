package sannet_test

import (
	"net"
	"reflect"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"sansock/sannet"
)

// callAll calls every method of v with zero arguments, and returns the results by name. A panic is "panic".
func callAll(v any) map[string][]any {
	results := make(map[string][]any)
	for i := range reflect.TypeOf(v).NumMethod() {
		m := reflect.TypeOf(v).Method(i)
		args := []reflect.Value{reflect.ValueOf(v)}
		for j := 1; j < m.Type.NumIn(); j++ {
			args = append(args, reflect.Zero(m.Type.In(j)))
		}
		func() {
			defer func() {
				if recover() != nil {
					results[m.Name] = []any{"panic"}
				}
			}()
			for _, r := range m.Func.Call(args) {
				results[m.Name] = append(results[m.Name], r.Interface())
			}
		}()
	}
	return results
}

// TestNilAndZero compares what the methods of nil pointers and zero values do with those of net's types.
func TestNilAndZero(t *testing.T) {
	// What a Conn and a Listener have not, see the package comment.
	notConn := []string{"SyscallConn", "File", "MultipathTCP"}
	notListener := []string{"SyscallConn", "File", "AcceptTCP"}
	for _, c := range []struct {
		name  string
		tcp   any
		ours  any
		lacks []string
	}{
		{"nil Conn", new(net.TCPConn), (*sannet.Conn)(nil), notConn}, // a nil *net.TCPConn panics in most methods
		{"zero Conn", new(net.TCPConn), new(sannet.Conn), notConn},
		{"nil Listener", (*net.TCPListener)(nil), (*sannet.Listener)(nil), notListener},
		{"zero Listener", new(net.TCPListener), new(sannet.Listener), notListener},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := callAll(c.tcp)
			for _, name := range c.lacks {
				assert.Contains(t, want, name)
				delete(want, name)
			}
			if want["Addr"] != nil {
				want["Addr"] = []any{nil} // net panics
			}
			got := callAll(c.ours)
			// There is no fmt.State without package fmt.
			delete(got, "Format")
			for _, name := range []string{"NewBuffer", "ReadBuffer", "WriteBuffer", "ReadUrgent", "WriteUrgent", "Handover", "Drain", "TCPFile"} { // beyond TCP
				if r := got[name]; r != nil {
					assert.Equal(t, syscall.EINVAL, r[len(r)-1], name)
				}
				delete(got, name)
			}
			assert.Equal(t, want, got)
		})
	}
	for _, c := range []net.Conn{nil, (*sannet.Conn)(nil), new(sannet.Conn), (*net.TCPConn)(nil), new(net.TCPConn)} {
		_, ok := sannet.InfoOf(c)
		assert.False(t, ok)
	}
}

// TestMethods: a Conn has the methods of a *net.TCPConn with the same signatures, and none of those that give the
// descriptor away.
func TestMethods(t *testing.T) {
	for _, types := range [][2]reflect.Type{
		{reflect.TypeFor[*net.TCPConn](), reflect.TypeFor[*sannet.Conn]()},
		{reflect.TypeFor[*net.TCPListener](), reflect.TypeFor[*sannet.Listener]()},
	} {
		for i := range types[0].NumMethod() {
			want := types[0].Method(i)
			got, ok := types[1].MethodByName(want.Name)
			switch want.Name {
			case "SyscallConn", "File", "MultipathTCP", "AcceptTCP":
				assert.False(t, ok, want.Name)
				continue
			}
			if assert.True(t, ok, want.Name) {
				assert.Equal(t, want.Type.NumIn(), got.Type.NumIn(), want.Name)
				for j := 1; j < want.Type.NumIn(); j++ {
					assert.Equal(t, want.Type.In(j), got.Type.In(j), want.Name)
				}
				for j := range want.Type.NumOut() {
					assert.Equal(t, want.Type.Out(j), got.Type.Out(j), want.Name)
				}
			}
		}
	}
	_, ok := reflect.TypeFor[*sannet.Conn]().MethodByName("NetConn")
	assert.False(t, ok)
}
