package providertest_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/provider/providertest"
)

// TestDocument shows that docs/spi.md names every method, attribute, status and rule.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/spi.md")
	require.NoError(t, err)
	page := string(b)
	for _, r := range providertest.Rules() {
		assert.Contains(t, page, fmt.Sprintf("\n| `%s` | %s |\n", r.Name, r.Promise))
	}
	table := page[strings.Index(page, "\n| rule |"):]
	assert.Len(t, strings.Split(table, "\n"), len(providertest.Rules())+4)
	for _, i := range []reflect.Type{
		reflect.TypeFor[provider.Provider](), reflect.TypeFor[provider.Listener](), reflect.TypeFor[provider.Request](),
		reflect.TypeFor[provider.Endpoint](), reflect.TypeFor[provider.RDMAReader](), reflect.TypeFor[provider.CacheInvalidator](),
		reflect.TypeFor[provider.Spinner](), reflect.TypeFor[provider.Sleeper](), reflect.TypeFor[provider.Appender](),
	} {
		for k := range i.NumMethod() {
			assert.Contains(t, page, "`"+i.Name()+"."+i.Method(k).Name+"`")
		}
	}
	attributes := reflect.TypeFor[provider.Attributes]()
	for k := range attributes.NumField() {
		assert.Regexp(t, "`(Attributes\\.)?"+attributes.Field(k).Name+"`", page)
	}
	statuses := []string{"OK", "Aborted", "Disconnected", "Access", "Local", "TooLong", "NotReady", "QueueFull", "NoMemory",
		"Limit", "Busy", "Refused", "Unreachable", "NoListener", "AddrInUse", "AddrNotAvail", "Timeout", "Link", "Unsupported",
		"Closed", "Exited", "ExitedUnread"}
	assert.Equal(t, "unknown status", provider.Status(len(statuses)).Error(), "there are more")
	for i, s := range statuses {
		assert.NotEqual(t, "unknown status", provider.Status(i).Error())
		assert.Contains(t, page, "\n| `Status"+s+"` |")
	}
}
