"""Makes ``python -m workers.cli`` the same as ``relight``."""

from workers.cli.main import main

main()
