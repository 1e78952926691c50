"""Reading logs, which is not verifying them: search, text for people and programs, a page."""
