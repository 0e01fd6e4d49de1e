"""`python -m ddp_audit` is `ddp-audit`."""

import sys

from ddp_audit.cli import main

if __name__ == "__main__":
    sys.exit(main())
