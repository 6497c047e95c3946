package sanswitch

import (
	"errors"
	"time"

	"sansock/provider"
)

// lesson is what the failure of an attempt says about the next one to the same destination, the least first.
type lesson uint8

const (
	// lessonNone: it was a matter of this host, of this attempt, or of a crowd at the peer, and passes.
	lessonNone lesson = iota

	// lessonAsk: the peer, or its host, has said no, and may say otherwise at any moment. Asking again costs little where the
	// answer comes at once.
	lessonAsk

	// lessonAvoid: the SAN does not work to there, or not now.
	lessonAvoid
)

// atOnce is how soon an answer comes that is not worth avoiding.
const atOnce = 20 * time.Millisecond

// lessonOf returns the lesson of err, which an attempt came to after it had taken so long.
func lessonOf(err error, took time.Duration) lesson {
	l := lessonAvoid
	switch reasonOf(err) {
	case ReasonMemory, ReasonLocalAddr, ReasonPorts, ReasonCanceled:
		return lessonNone
	case ReasonNoListener, ReasonOtherUser:
		l = lessonAsk
	case ReasonPeerDeclined:
		switch peerReasonOf(err) {
		case ReasonBusy: // however long that took: one of a crowd does not get an answer at once
			return lessonNone
		case ReasonMemory:
			l = lessonAsk
		}
	case ReasonProviderFailed:
		if errors.Is(err, provider.StatusBusy) || errors.Is(err, provider.StatusClosed) {
			return lessonNone
		}
	}
	if l == lessonAsk && took >= atOnce {
		return lessonAvoid
	}
	return l
}
