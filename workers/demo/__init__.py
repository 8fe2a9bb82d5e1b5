"""The demonstration: embedded servers, a simulated cluster, four jobs, a live table, and a check of the end."""
