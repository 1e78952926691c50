"""Tools that verify the product over minutes or hours. None is a test, and no test is of a tool."""
