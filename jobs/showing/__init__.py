"""What `show` finds, written for a terminal."""
