"""distributed's own tests of its protocol package, run against safeser's functions."""
