"""Every touch of the outside world, behind small protocols; each module speaks one foreign language."""
