Licenses of the modules in the programs of Berth. The last one is that of Go.
{{range .}}
--------------------------------------------------------------------------------
{{.Name}} {{.Version}} ({{.LicenseName}})

{{.LicenseText}}
{{end}}
--------------------------------------------------------------------------------
Go

