"""What audit logs say about a policy: messages that were permitted, replayed and learned from."""
