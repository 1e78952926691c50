"""Programs that show how safeser is used; run them from a checkout."""
