"""`python -m stplan` is the stplan command."""

import sys

from _stplan import main

sys.exit(main())
