package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
)

const rolesHead = `# Roles

` + "`go test ./integration/docs -rewrite`" + ` generates this page from the code; do not edit it. Each table has the roles that may call a method on a listener. Every other caller gets ` + "`PERMISSION_DENIED`" + ` with the missing role. Callers in plain text have every role of the listener. [Control access](../how-to/control-access.md) describes how callers get roles. Job services may use only their own jobs, and agents only their own executor.
`

// roles returns the tables of all listeners.
func roles() string {
	b := &strings.Builder{}
	b.WriteString(rolesHead)
	for _, at := range access.Listeners {
		rules := map[identity.Role][]string{}
		for _, rule := range access.Rules() {
			if rule.Listener == at {
				rules[rule.Roles] = append(rules[rule.Roles], "`"+strings.TrimPrefix(rule.Method, "/")+"`")
			}
		}
		fmt.Fprintf(b, "\n## %s\n\n| roles | methods |\n|---|---|\n", titleOf(at))
		for _, may := range slices.Backward(slices.Sorted(maps.Keys(rules))) {
			fmt.Fprintf(b, "| %s | %s |\n", strings.ReplaceAll(may.String(), " or ", ", "), strings.Join(rules[may], "<br>"))
		}
	}
	return b.String()
}

func titleOf(at access.Listener) string {
	switch at {
	case access.Public, access.Agents, access.Internal:
		return "Gateway " + "`" + at.String() + "`"
	case access.Service:
		return "`--listen` of a service"
	case access.Agent:
		return "`--listen` of an agent"
	}
	return "`" + at.String() + "`"
}

func TestRolesMatchCode(t *testing.T) {
	generated(t, "docs/reference/roles.md", roles())
}
