"""Questions about a whole policy: which context decides, whose code runs where, contradictions."""
