"""What is asked over HTTP, whatever for: who we are there, how much is taken, and how it fails."""
