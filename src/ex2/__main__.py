"""`python -m ex2` is the same program as `ex2`."""

from ex2.cli import main

raise SystemExit(main())
