package show

// Contexts returns the table of contexts. Each row has the cells of a context.
func Contexts(rows [][]string) *Table {
	t := table("CONTEXT", "CURRENT", "GATEWAY", "TLS-CA", "TLS-CERT", "TOKEN-FILE")
	for _, row := range rows {
		t.add(row...)
	}
	return t
}
