package sannet_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// actor is the end that ends. It runs in a process of its own, or else in a goroutine.
type actor struct {
	conn
	wire
	conns    []conn // the first is conn
	way      way
	fatal    func(error)
	die      func(way) // nil: there is no process
	finished bool
}

// wire joins actor and witness beside their connection, with words in lines.
type wire struct {
	from *bufio.Reader
	to   io.Writer
}

// The words of a wire.
const (
	wordAt   = "at"   // the actor listens at
	wordTell = "tell" // the actor tells a number
	wordKill = "kill" // the actor asks to be killed
	wordStop = "stop" // the actor asks to be stopped
	wordGone = "gone" // the actor's end of the connection is closed, and it lives
	wordGo   = "go"   // the witness lets the actor go on
)

func (w wire) say(word string, arg any) error {
	_, err := fmt.Fprintln(w.to, word, arg)
	return err
}

func (w wire) hear() (word, arg string, err error) {
	line, err := w.from.ReadString('\n')
	word, arg, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return word, arg, err
}

// must ends the actor, and the test, where there is an error.
func (a *actor) must(err error) {
	if err != nil {
		a.fatal(err)
	}
}

// tell lets the witness know a number.
func (a *actor) tell(n int) { a.must(a.say(wordTell, n)) }

// wait waits for the witness to call goOn.
func (a *actor) wait() {
	word, _, err := a.hear()
	if err == nil && word != wordGo {
		err = fmt.Errorf("%q from the witness", word)
	}
	a.must(err)
}

// write writes the first n bytes of the pattern, in parts of which sizes gives one after the other.
func (a *actor) write(n int, sizes ...int) {
	for done, i := 0, 0; done < n; i++ {
		m, err := a.Write(pattern(n)[done:min(done+sizes[i%len(sizes)], n)])
		a.must(err)
		done += m
	}
}

// read reads n bytes, and no more.
func (a *actor) read(n int) {
	b := make([]byte, n)
	_, err := io.ReadFull(a.conn, b)
	a.must(err)
}

// end ends the actor.
func (a *actor) end() {
	if a.way == closes || a.way == leaves {
		for _, c := range a.conns {
			a.must(c.Close())
		}
	}
	if a.way != closes {
		a.die(a.way)
		return
	}
	a.must(a.say(wordGone, 0))
	a.finished = true
}
