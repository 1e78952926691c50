"""What an operator installs for analysts: some of its functions are allowed to them, some not."""
