package model

// WellNamed reports whether a name contains only letters, digits, '.', '_' and '-' and
// starts with a letter or digit. The caller must check the length.
func WellNamed(name string) bool {
	for i, r := range name {
		alphanumeric := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alphanumeric && (i == 0 || r != '.' && r != '_' && r != '-') {
			return false
		}
	}
	return true
}

// ValidName reports whether WellNamed accepts a name and the name has 1 to longest bytes.
func ValidName(name string, longest int) bool {
	return name != "" && len(name) <= longest && WellNamed(name)
}
