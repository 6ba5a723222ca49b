package watch

// Memory returns the memory of all answers, in bytes.
func (s *Server) Memory() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory
}
