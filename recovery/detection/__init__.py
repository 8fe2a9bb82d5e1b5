"""Crash, hang, straggler, progress: small state machines fed with signals. Time always comes in as an argument."""
