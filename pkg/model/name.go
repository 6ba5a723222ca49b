package model

// WellNamed reports whether a name is made of letters, digits, '.', '_' and '-', the
// first a letter or digit. Length is the caller's to check.
func WellNamed(name string) bool {
	for i, r := range name {
		alphanumeric := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alphanumeric && (i == 0 || r != '.' && r != '_' && r != '-') {
			return false
		}
	}
	return true
}

// ValidName reports whether a name has 1 to longest bytes and is well named.
func ValidName(name string, longest int) bool {
	return name != "" && len(name) <= longest && WellNamed(name)
}
