"""What `relight doctor` looks at: each check says what works, what does not, and how to mend it."""
