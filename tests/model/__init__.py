"""The model check: the action protocol and the watchdog among all that can happen, many seeded runs of it."""
