"""Tools that verify the product over minutes or hours; none of them is a test, and nothing tests them."""
