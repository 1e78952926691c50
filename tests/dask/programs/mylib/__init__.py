"""What an operator installs: classes of values, of which one is registered."""
