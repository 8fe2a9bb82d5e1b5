"""Attribution services of the site: the real ones, and stand-ins that fail in all ways."""
