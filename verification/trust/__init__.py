"""What a reviewer must trust: functions that are entered, and what their files import."""
